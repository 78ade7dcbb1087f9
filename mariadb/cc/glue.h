/* Copyright (C) 2026 the Strata authors. SPDX-License-Identifier: GPL-2.0-only */

/* What the files of the handler share. */
#ifndef STRATA_GLUE_H
#define STRATA_GLUE_H

#include "compat.h"
#include "strata.h"
#include <vector>

struct ha_table_option_struct;

namespace strata {

/* plugin.cc */
extern handlerton *engine;       /* null before init */
extern StrataStore *store;       /* the open database; null before init and after deinit */
ulong lock_wait_timeout(THD *thd); /* strata_lock_wait_timeout, or what it follows, in seconds */

bool snapshot_isolation(THD *thd); /* strata_snapshot_isolation */
bool purges_expired();             /* strata_ttl_purge */

/* For a thread that mysys, which the server and its plugins may use, need not know. */
class KnownThread
{
public:
  KnownThread() : foreign_(!_my_thread_var()), failed_(foreign_ && my_thread_init()) {}
  ~KnownThread()
  {
    if (foreign_ && !failed_)
      my_thread_end();
  }
  bool failed() const { return failed_; }

private:
  bool foreign_, failed_;
};

/* strata_read_timestamp: is it set? To which moment, in seconds since 1970; false, with the error pushed, if its text is none. */
bool read_timestamp_is_set(THD *thd);
bool read_timestamp(THD *thd, ulonglong *moment);

/* handlerton.cc */
void install_transaction_hooks(handlerton *hton);
void install_transaction_callbacks(StrataCallbacks *callbacks);
int settle_prepared(); /* a StrataResult; once the store is open */
StrataSession *session_of(THD *thd);  /* creates the connection's session; null: out of memory, the error is pushed */
/* Registers the statement (and the transaction it is part of) with the server and begins it in the row layer.
   `no_wait` becomes true if the user does not want to wait for row locks. */
int begin_statement(THD *thd, StrataSession **session, bool *no_wait);
uint32_t isolation_of(THD *thd);
uint64_t lock_wait_us(THD *thd);      /* how long the statement waits for a lock */
bool locks_whole_tables(THD *thd);    /* LOCK TABLES, until the transaction ends */
uint32_t statement_kind(THD *thd);    /* a StrataStatement */
bool drops_whole_tables(THD *thd);    /* if it drops any */
/* True, with the error pushed, if the statement is to be logged as such but an engine with these flags needs rows. */
bool cannot_log_statement(THD *thd, handler::Table_flags flags);
/* With several workers a replica executes DDL while transactions before it have not committed yet, and notes its position
   in a transaction of its own, for which the server lifts the order of commits: a crash would lose those transactions. So
   the order is kept here. A handler waits before it changes anything, since a crash between the DDL and its position has
   the server repeat the DDL; what changes no table of this engine waits where the position is noted.
   Nor does the server order transactions of several engines (rows here, the position in InnoDB) that its open binary log
   does not get: the later one would commit first, and what the earlier one then writes to the same rows would stay. It
   waits when it is prepared, and can still be killed and tried again for the earlier one.
   Returns a handler error, with the reason pushed, if an earlier transaction has failed or the wait was killed. */
int wait_for_earlier_commits(THD *thd);
/* A worker of a replica is going to write to a table of positions. After begin_statement(). */
void writes_positions(THD *thd);
bool in_transaction(THD *thd); /* more than one autocommitted statement */

/* collations.cc */
void describe_collation(const CHARSET_INFO *cs, StrataCollation *out);
void install_collation_callbacks(StrataCallbacks *callbacks);

/* fields.cc: the bytes of a TIMESTAMP(6). */
void store_time(ulonglong seconds, ulong microseconds, uint8_t *out);

/* fields.cc: the row layer's view of a table. It points into the TABLE and into itself. */
class Definition
{
public:
  /* Returns 0 or a handler error, with a message pushed. */
  int describe(TABLE *table, bool temporary, const ha_table_option_struct *options);
  const StrataTableDef *get() const { return &def_; }

private:
  bool describe_field(const TABLE *table, Field *field, StrataColumn *column);
  StrataTableDef def_;
  std::vector<StrataColumn> columns_;
  std::vector<StrataIndex> indexes_;
  std::vector<StrataKeyPart> parts_;
};

} // namespace strata

/* The table options of CREATE TABLE; the server finds the type by this name. */
struct ha_table_option_struct
{
  uint compression; /* 0 default, 1 none, 2 lz4, 3 zstd */
  uint encrypted;   /* 0 default, 1 yes, 2 no */
  ulonglong encryption_key;
  char *ttl; /* null: none */
};

namespace strata {

/* Has the table the option TTL? */
inline bool rows_expire(const TABLE_SHARE *share)
{
  const ha_table_option_struct *options= share->option_struct;
  return options && options->ttl && *options->ttl;
}

/* handlerton::check_version */
int check_version(handlerton *hton, const char *path, const LEX_CUSTRING *version, ulonglong create_id);
} // namespace strata

#endif
