/* Copyright (C) 2026 the Strata authors. SPDX-License-Identifier: GPL-2.0-only */

/* Everything of the handler that depends on the server's version. The first include of every file here: it brings in
   the server's headers in the order they need. */
#ifndef STRATA_COMPAT_H
#define STRATA_COMPAT_H

#ifndef MYSQL_SERVER
#define MYSQL_SERVER 1 /* class THD is visible */
#endif

#include <my_global.h>
#include <mysql_version.h>
#include "sql_plugin.h"
#include "sql_class.h"
#include "handler.h"
#include "field.h"
#include "key.h"
#include "table.h"
#include "sql_table.h"
#include "log.h"
#include "mysqld.h"
#include "rpl_rli.h"
#include <mysql/plugin.h>

#if MYSQL_VERSION_ID < 101100
#error "Strata needs MariaDB 10.11 or newer"
#endif

/* From 11.7 on what takes part in transactions need not be an engine: those callbacks have lost their first argument, the handlerton.
   (The others keep it, kill_query among them.) */
#if MYSQL_VERSION_ID >= 110700
#define HTON_FIRST
#else
#define HTON_FIRST handlerton *,
#endif

/* From 11.4 on estimates of ranges are told how many rows are wanted at most, and the hints around a copy have other names. */
#if MYSQL_VERSION_ID >= 110400
#define MRR_LIMIT_PARAMETER ha_rows limit,
#define MRR_LIMIT limit,
#define STRATA_EXTRA_BEGIN_COPY HA_EXTRA_BEGIN_ALTER_COPY
#define STRATA_EXTRA_END_COPY HA_EXTRA_END_ALTER_COPY
#define STRATA_EXTRA_ABORT_COPY HA_EXTRA_ABORT_ALTER_COPY
#else
#define MRR_LIMIT_PARAMETER
#define MRR_LIMIT
#define STRATA_EXTRA_BEGIN_COPY HA_EXTRA_BEGIN_COPY
#define STRATA_EXTRA_END_COPY HA_EXTRA_END_COPY
#define STRATA_EXTRA_ABORT_COPY HA_EXTRA_ABORT_COPY
#endif

/* As innodb_snapshot_isolation of the same version. */
#define STRATA_SNAPSHOT_ISOLATION_DEFAULT (MYSQL_VERSION_ID >= 110602)

/* 11.0 replaced the costs of plans, given in reads, by times. */
#define STRATA_COSTS_IN_READS (MYSQL_VERSION_ID < 110000)

/* Results of commit_by_xid() and its like, which no header of the server names. */
#ifndef XAER_NOTA
#define XAER_NOTA (-4)
#define XAER_RMERR (-3)
#endif

namespace strata {

/* The name a collation is stored under: it tells more than its number, which servers have reused. */
inline const char *collation_name(const CHARSET_INFO *cs) { return cs->coll_name.str; }

/* The binary log is a participant of the transactions that it has something of. 11.7 has made it one that is no engine. */
inline bool is_binlog(const Ha_trx_info *part)
{
#if MYSQL_VERSION_ID >= 110700
  return part->ht() == &binlog_tp;
#else
  return part->ht() == binlog_hton;
#endif
}

/* Interrupts of any kind count: KILL QUERY, max_statement_time, a dropped connection. */
inline bool statement_killed(const THD *thd)
{
  return thd && thd_kill_level(const_cast<THD *>(thd)) != THD_IS_NOT_KILLED;
}

/* Forgets the connection's object without giving up the reference to the plugin that the server manages. A kill, which
   holds the same mutex, has finished with the object when this returns. */
inline void forget_connection(THD *thd, handlerton *hton)
{
  mysql_mutex_lock(&thd->LOCK_thd_data);
  thd->ha_data[hton->slot].ha_ptr= nullptr;
  mysql_mutex_unlock(&thd->LOCK_thd_data);
}

/* The server notes there how far a replica is: mysql.gtid_slave_pos, or gtid_slave_pos_ENGINE. */
inline bool holds_positions(const TABLE_SHARE *share)
{
  const LEX_CSTRING &name= rpl_gtid_slave_state_table_name;
  return share->db.length == MYSQL_SCHEMA_NAME.length && !memcmp(share->db.str, MYSQL_SCHEMA_NAME.str, share->db.length) &&
         share->table_name.length >= name.length && !memcmp(share->table_name.str, name.str, name.length);
}

/* Are two names of columns, indexes or the like the same? */
inline bool same_name(const LEX_CSTRING &a, const LEX_CSTRING &b)
{
#if MYSQL_VERSION_ID >= 110400
  return system_charset_info->streq(a, b);
#else
  return !lex_string_cmp(system_charset_info, &a, &b);
#endif
}

inline bool same_name(const char *a, const char *b) { return same_name(LEX_CSTRING{a, strlen(a)}, LEX_CSTRING{b, strlen(b)}); }

/* What ALTER TABLE drops. 11.5 made a string with its length of it. */
inline const char *dropped_name(const Alter_drop &drop)
{
#if MYSQL_VERSION_ID >= 110500
  return drop.name.str;
#else
  return drop.name;
#endif
}

/* A name of a database or table in small letters. */
inline void lower_name(char (&to)[SAFE_NAME_LEN + 1], const char *name)
{
#if MYSQL_VERSION_ID >= 110400
  system_charset_info->casedn_z(name, strlen(name), to, sizeof to);
#else
  strmake_buf(to, name);
  my_casedn_str(system_charset_info, to);
#endif
}

/* The values of an enumeration. The structure has grown. */
template <size_t N> TYPELIB type_of(const char *(&names)[N])
{
  TYPELIB type= {};
  type.count= (uint) N - 1;
  type.name= "";
  type.type_names= names;
  return type;
}

/* Is this server the build of which the plugin has the structures in memory? If not it has been said in the error log. */
bool fits_server();

/* What the optimizer is told of the engine once, at its start. */
void install_costs(handlerton *hton);

/* Are values vectors? (11.7.) They look like VARBINARY, but the server fills them up to their length when it copies them. */
inline bool is_vector(const Type_handler *type) { return !strcmp(type->name().ptr(), "vector"); }

/* Will the server make a table of its own for an index of vectors? It has a column for references to rows of this one. */
inline bool has_vector_index(const TABLE_SHARE *share)
{
#if MYSQL_VERSION_ID >= 110700
  return share->total_keys > share->keys;
#else
  (void) share;
  return false;
#endif
}

/* The options of CREATE TABLE ... as the parser left them. */
inline Alter_info *create_alter_info(HA_CREATE_INFO *create_info) { return create_info->alter_info; }

} // namespace strata

#endif
