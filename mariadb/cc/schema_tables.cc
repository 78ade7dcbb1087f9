/* Copyright (C) 2026 the Strata authors. SPDX-License-Identifier: GPL-2.0-only */

/* STRATA_LOCKS, STRATA_LOCK_WAITS, STRATA_TRX, STRATA_METRICS, STRATA_FOREIGN_KEYS, STRATA_BUILDS, STRATA_TABLES, STRATA_INDEXES, STRATA_LEVELS,
   STRATA_COMPACTIONS: columns here, in the order of the row layer's cells. */

#include "schema_tables.h"
#include "errors.h"
#include "glue.h"
#include "sql_acl.h"
#include "sql_i_s.h"
#include "sql_show.h"

namespace strata {
namespace {

using Show::CEnd;
using Show::Column;
using Show::ULonglong;
using Show::Varchar;

struct Filling
{
  THD *thd;
  TABLE *table;
  void (*last)(const StrataCell *cells, Field *field); /* stores a last column that is not among the cells */
  bool failed;
};

void store_row(void *to, const StrataCell *cells, size_t count)
{
  Filling *filling= static_cast<Filling *>(to);
  if (filling->failed)
    return;
  TABLE *table= filling->table;
  restore_record(table, s->default_values);
  for (size_t i= 0; i < count && i < table->s->fields; i++)
  {
    if (cells[i].text)
      table->field[i]->store(cells[i].text, cells[i].len, system_charset_info);
    else
      table->field[i]->store((longlong) cells[i].number, true);
  }
  if (filling->last)
    filling->last(cells, table->field[table->s->fields - 1]);
  filling->failed= schema_table_store_record(filling->thd, table);
}

int fill(THD *thd, TABLE_LIST *tables, uint32_t report, void (*last)(const StrataCell *, Field *))
{
  if (!store || check_global_access(thd, PROCESS_ACL, true))
    return 0;
  Filling filling= {thd, tables->table, last, false};
  int result= strata_report(store, report, store_row, &filling);
  if (result != STRATA_OK)
    log_error("a report");
  return filling.failed || result != STRATA_OK;
}

ST_FIELD_INFO lock_fields[]= {Column("TRX_ID", ULonglong(), NOT_NULL),
                              Column("CONNECTION_ID", ULonglong(), NOT_NULL),
                              Column("STATE", Varchar(8), NOT_NULL),
                              Column("LOCK_TYPE", Varchar(16), NOT_NULL),
                              Column("TABLE_NAME", Varchar(2 * NAME_LEN + 1), NOT_NULL),
                              Column("INDEX_NAME", Varchar(NAME_LEN), NOT_NULL),
                              Column("LOCK_KEY", Varchar(1024), NOT_NULL),
                              Column("LOCK_END", Varchar(1024), NOT_NULL),
                              CEnd()};

ST_FIELD_INFO wait_fields[]= {Column("TRX_ID", ULonglong(), NOT_NULL),
                              Column("CONNECTION_ID", ULonglong(), NOT_NULL),
                              Column("LOCK_TYPE", Varchar(16), NOT_NULL),
                              Column("TABLE_NAME", Varchar(2 * NAME_LEN + 1), NOT_NULL),
                              Column("INDEX_NAME", Varchar(NAME_LEN), NOT_NULL),
                              Column("LOCK_KEY", Varchar(1024), NOT_NULL),
                              Column("BLOCKING_TRX_ID", ULonglong(), NOT_NULL),
                              Column("BLOCKING_CONNECTION_ID", ULonglong(), NOT_NULL),
                              CEnd()};

ST_FIELD_INFO transaction_fields[]= {Column("TRX_ID", ULonglong(), NOT_NULL),
                                     Column("CONNECTION_ID", ULonglong(), NOT_NULL),
                                     Column("SECONDS", ULonglong(), NOT_NULL),
                                     Column("ISOLATION_LEVEL", Varchar(16), NOT_NULL),
                                     Column("CHANGES", ULonglong(), NOT_NULL),
                                     Column("ROW_LOCKS", ULonglong(), NOT_NULL),
                                     Column("STATE", Varchar(8), NOT_NULL),
                                     Column("XID", Varchar(300), NOT_NULL),
                                     Column("QUERY", Varchar(1024), NOT_NULL),
                                     CEnd()};

/* The statement that a connection runs at this moment: the last column of a transaction. */
void store_query(const StrataCell *cells, Field *field)
{
  char text[1024];
  size_t length= 0;
  if (THD *thd= cells[1].number ? find_thread_by_id((longlong) cells[1].number) : nullptr)
  {
    length= thd_query_safe(thd, text, sizeof(text));
    mysql_mutex_unlock(&thd->LOCK_thd_kill);
  }
  field->store(text, length, system_charset_info);
}

ST_FIELD_INFO metric_fields[]= {Column("NAME", Varchar(64), NOT_NULL),
                                Column("SUBSYSTEM", Varchar(16), NOT_NULL),
                                Column("VALUE", ULonglong(), NOT_NULL),
                                Column("KIND", Varchar(8), NOT_NULL),
                                Column("UNIT", Varchar(16), NOT_NULL),
                                Column("COMMENT", Varchar(192), NOT_NULL),
                                CEnd()};

ST_FIELD_INFO foreign_key_fields[]= {Column("CONSTRAINT_NAME", Varchar(NAME_LEN), NOT_NULL),
                                     Column("TABLE_NAME", Varchar(2 * NAME_LEN + 5), NOT_NULL),
                                     Column("REFERENCED_TABLE_NAME", Varchar(2 * NAME_LEN + 5), NOT_NULL),
                                     Column("COLUMN_NAMES", Varchar(1024), NOT_NULL),
                                     Column("REFERENCED_COLUMN_NAMES", Varchar(1024), NOT_NULL),
                                     Column("DELETE_RULE", Varchar(16), NOT_NULL),
                                     Column("UPDATE_RULE", Varchar(16), NOT_NULL),
                                     Column("INDEX_NAME", Varchar(NAME_LEN), NOT_NULL),
                                     Column("REFERENCED_INDEX_NAME", Varchar(NAME_LEN), NOT_NULL),
                                     CEnd()};

ST_FIELD_INFO build_fields[]= {Column("TABLE_NAME", Varchar(2 * NAME_LEN + 5), NOT_NULL),
                               Column("STEP", Varchar(32), NOT_NULL),
                               Column("ROWS_DONE", ULonglong(), NOT_NULL),
                               Column("ROWS_OF", ULonglong(), NOT_NULL),
                               Column("SECONDS", ULonglong(), NOT_NULL),
                               CEnd()};

ST_FIELD_INFO table_fields[]= {Column("TABLE_NAME", Varchar(2 * NAME_LEN + 5), NOT_NULL),
                               Column("PARTITION_NAME", Varchar(2 * NAME_LEN + 1), NOT_NULL),
                               Column("TABLE_ROWS", ULonglong(), NOT_NULL),
                               Column("DATA_RAW_BYTES", ULonglong(), NOT_NULL),
                               Column("DATA_DISK_BYTES", ULonglong(), NOT_NULL),
                               Column("INDEX_RAW_BYTES", ULonglong(), NOT_NULL),
                               Column("INDEX_DISK_BYTES", ULonglong(), NOT_NULL),
                               Column("TOMBSTONES", ULonglong(), NOT_NULL),
                               Column("SCHEMA_VERSIONS", ULonglong(), NOT_NULL),
                               Column("ENCRYPTION_KEY_ID", ULonglong(), NOT_NULL),
                               CEnd()};

/* What a level holds, of an index or of all. */
#define HOLDING_COLUMNS                                                                                                            \
  Column("FILES", ULonglong(), NOT_NULL), Column("ENTRIES", ULonglong(), NOT_NULL), Column("TOMBSTONES", ULonglong(), NOT_NULL),     \
    Column("RAW_BYTES", ULonglong(), NOT_NULL), Column("DISK_BYTES", ULonglong(), NOT_NULL)

ST_FIELD_INFO index_fields[]= {Column("TABLE_NAME", Varchar(2 * NAME_LEN + 5), NOT_NULL),
                               Column("PARTITION_NAME", Varchar(2 * NAME_LEN + 1), NOT_NULL),
                               Column("INDEX_NAME", Varchar(NAME_LEN), NOT_NULL),
                               Column("LEVEL", Varchar(8), NOT_NULL),
                               HOLDING_COLUMNS,
                               CEnd()};

ST_FIELD_INFO level_fields[]= {Column("LEVEL", ULonglong(), NOT_NULL),
                               Column("SORTED_RUNS", ULonglong(), NOT_NULL),
                               HOLDING_COLUMNS,
                               CEnd()};

ST_FIELD_INFO compaction_fields[]= {Column("JOB", ULonglong(), NOT_NULL),
                                    Column("KIND", Varchar(8), NOT_NULL),
                                    Column("STATE", Varchar(8), NOT_NULL),
                                    Column("FROM_LEVEL", Varchar(8), NOT_NULL),
                                    Column("TO_LEVEL", Varchar(8), NOT_NULL),
                                    Column("REASON", Varchar(64), NOT_NULL),
                                    Column("SECONDS_SINCE_BEGIN", ULonglong(), NOT_NULL),
                                    Column("MILLISECONDS", ULonglong(), NOT_NULL),
                                    Column("BYTES_IN", ULonglong(), NOT_NULL),
                                    Column("FILES_OUT", ULonglong(), NOT_NULL),
                                    Column("BYTES_OUT", ULonglong(), NOT_NULL),
                                    Column("ERROR", Varchar(512), NOT_NULL),
                                    CEnd()};

template <uint32_t REPORT> int fill_report(THD *thd, TABLE_LIST *tables, COND *)
{
  return fill(thd, tables, REPORT, REPORT == STRATA_REPORT_TRANSACTIONS ? store_query : nullptr);
}

template <ST_FIELD_INFO *FIELDS, uint32_t REPORT> int init(void *p)
{
  ST_SCHEMA_TABLE *schema= static_cast<ST_SCHEMA_TABLE *>(p);
  schema->fields_info= FIELDS;
  schema->fill_table= fill_report<REPORT>;
  return 0;
}

int deinit(void *) { return 0; }

st_mysql_information_schema info= {MYSQL_INFORMATION_SCHEMA_INTERFACE_VERSION};

constexpr st_maria_plugin declare(const char *name, const char *what, int (*init)(void *))
{
  return {MYSQL_INFORMATION_SCHEMA_PLUGIN, &info, name, "The Strata authors", what, PLUGIN_LICENSE_GPL, init, deinit,
          0x0001, nullptr, nullptr, "0.1", MariaDB_PLUGIN_MATURITY_EXPERIMENTAL};
}

} // namespace

const st_maria_plugin schema_locks= declare("STRATA_LOCKS", "Locks of rows and intervals, held and waited for",
                                            init<lock_fields, STRATA_REPORT_LOCKS>);
const st_maria_plugin schema_lock_waits= declare("STRATA_LOCK_WAITS", "Who waits for whom",
                                                 init<wait_fields, STRATA_REPORT_LOCK_WAITS>);
const st_maria_plugin schema_transactions= declare("STRATA_TRX", "Open transactions",
                                                   init<transaction_fields, STRATA_REPORT_TRANSACTIONS>);
const st_maria_plugin schema_metrics= declare("STRATA_METRICS", "Figures about the store, with their meaning",
                                              init<metric_fields, STRATA_REPORT_METRICS>);
const st_maria_plugin schema_foreign_keys= declare("STRATA_FOREIGN_KEYS", "Foreign keys, with the indexes that they use",
                                                   init<foreign_key_fields, STRATA_REPORT_FOREIGN_KEYS>);
const st_maria_plugin schema_storage[]= {
    declare("STRATA_TABLES", "What tables and partitions hold", init<table_fields, STRATA_REPORT_TABLES>),
    declare("STRATA_INDEXES", "What indexes hold, level by level", init<index_fields, STRATA_REPORT_INDEXES>),
    declare("STRATA_LEVELS", "Levels of the tree", init<level_fields, STRATA_REPORT_LEVELS>),
    declare("STRATA_COMPACTIONS", "Flushes and merges, running and the last ones",
            init<compaction_fields, STRATA_REPORT_COMPACTIONS>),
    declare("STRATA_BUILDS", "New indexes that are being made by ALTER TABLE", init<build_fields, STRATA_REPORT_BUILDS>)};

} // namespace strata
