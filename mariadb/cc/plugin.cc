/* Copyright (C) 2026 the Strata authors. SPDX-License-Identifier: GPL-2.0-only */

/* The plugin: its declaration, start and stop, system and status variables. */

#include "checkpoint.h"
#include "errors.h"
#include "foreign.h"
#include "glue.h"
#include "ha_strata.h"
#include "instruments.h"
#include "schema_tables.h"
#include "set_var.h"
#include "tztime.h"
#include <mysql/service_encryption.h>
#include <atomic>
#include <string>

/* Exported by the server without a declaration in its headers. */
extern void ignore_db_dirs_append(const char *dirname_arg);

namespace strata {

handlerton *engine;
StrataStore *store;

namespace {

constexpr char DIRECTORY[]= "#strata"; /* below the data directory, which is the server's current directory */

unsigned long long block_cache_size;
unsigned long long memtable_budget;
unsigned long long log_segment_size;
unsigned int flush_log_at_trx_commit;
unsigned int background_threads;
my_bool encrypt_log, print_all_deadlocks, ttl_purge;
unsigned long long history_retention;
unsigned long encrypt_tables;

void log_line(int severity, const char *text, size_t length)
{
  /* A thread that nobody has made known to mysys. */
  bool foreign= !_my_thread_var();
  if (foreign && my_thread_init())
    return;
  int shown= (int) MY_MIN(length, 4000);
  switch (severity)
  {
  case 0: sql_print_information("Strata: %.*s", shown, text); break;
  case 1: sql_print_warning("Strata: %.*s", shown, text); break;
  default: sql_print_error("Strata: %.*s", shown, text);
  }
  if (foreign)
    my_thread_end();
}

uint32_t key_version(uint32_t id)
{
  KnownThread thread;
  if (thread.failed())
    return 0;
  unsigned int version= encryption_key_get_latest_version(id);
  return version == ENCRYPTION_KEY_VERSION_INVALID ? 0 : version;
}

size_t key_bytes(uint32_t id, uint32_t version, uint8_t *out, size_t cap)
{
  KnownThread thread;
  if (thread.failed())
    return 0;
  unsigned int length= (unsigned int) cap;
  return encryption_key_get(id, version, out, &length) ? 0 : length;
}

int killed(const void *thd) { return statement_killed(thd ? static_cast<const THD *>(thd) : current_thd); }

void update_block_cache_size(MYSQL_THD, st_mysql_sys_var *, void *var, const void *value)
{
  unsigned long long bytes= *static_cast<const unsigned long long *>(value);
  *static_cast<unsigned long long *>(var)= bytes;
  if (store)
    strata_set_block_cache_bytes(store, bytes);
}

void update_memtable_budget(MYSQL_THD, st_mysql_sys_var *, void *var, const void *value)
{
  unsigned long long bytes= *static_cast<const unsigned long long *>(value);
  *static_cast<unsigned long long *>(var)= bytes;
  if (store)
    strata_set_memtable_budget_bytes(store, bytes);
}

void update_encrypt_tables(MYSQL_THD thd, st_mysql_sys_var *, void *var, const void *value)
{
  unsigned long mode= *static_cast<const unsigned long *>(value);
  if (store && told_error(strata_set_encrypt_tables(store, (uint32_t) mode), thd, ER_UNKNOWN_ERROR))
    return;
  *static_cast<unsigned long *>(var)= mode;
}

void update_print_deadlocks(MYSQL_THD, st_mysql_sys_var *, void *var, const void *value)
{
  my_bool on= *static_cast<const my_bool *>(value);
  *static_cast<my_bool *>(var)= on;
  if (store)
    strata_set_print_deadlocks(store, on);
}

void update_ttl_purge(MYSQL_THD, st_mysql_sys_var *, void *var, const void *value)
{
  my_bool on= *static_cast<const my_bool *>(value);
  *static_cast<my_bool *>(var)= on;
  if (store)
    strata_purge_set(store, on);
}

void update_history_retention(MYSQL_THD thd, st_mysql_sys_var *, void *var, const void *value)
{
  unsigned long long seconds= *static_cast<const unsigned long long *>(value);
  if (store && told_error(strata_set_history_retention(store, seconds), thd, ER_UNKNOWN_ERROR))
    return;
  *static_cast<unsigned long long *>(var)= seconds;
}

/* A date with a time in the session's time zone: a whole second, since there is one state of the past for each. */
bool parse_moment(THD *thd, const char *text, ulonglong *moment)
{
  MYSQL_TIME time;
  MYSQL_TIME_STATUS status;
  if (str_to_datetime_or_date(text, strlen(text), &time, C_TIME_NO_ZERO_IN_DATE | C_TIME_NO_ZERO_DATE, &status) || status.warnings ||
      time.time_type != MYSQL_TIMESTAMP_DATETIME || time.second_part)
    return false;
  uint error= 0;
  my_time_t seconds= thd->variables.time_zone->TIME_to_gmt_sec(&time, &error);
  if (error || seconds <= 0)
    return false;
  *moment= (ulonglong) seconds;
  return true;
}

/* A moment is chosen outside of transactions, whose reads are fixed; the present at any time, for the next one. */
int check_read_timestamp(MYSQL_THD thd, st_mysql_sys_var *, void *save, st_mysql_value *value)
{
  char buffer[64];
  int length= sizeof buffer;
  const char *text= value->val_str(value, buffer, &length);
  *static_cast<const char **>(save)= nullptr;
  if (thd->lex->option_type == OPT_GLOBAL)
  {
    my_error(ER_LOCAL_VARIABLE, MYF(0), "strata_read_timestamp");
    return 1;
  }
  if (!text || !length)
    return 0;
  if (!(text= thd_strmake(thd, text, (size_t) length)))
    return 1;
  ulonglong moment;
  if (!parse_moment(thd, text, &moment))
  {
    my_error(ER_WRONG_VALUE_FOR_VAR, MYF(0), "strata_read_timestamp", text);
    return 1;
  }
  if (thd->in_sub_stmt || thd->locked_tables_mode || thd->in_active_multi_stmt_transaction())
  {
    my_printf_error(ER_CANT_CHANGE_TX_CHARACTERISTICS,
                    "strata_read_timestamp cannot be set within a transaction, a function or trigger, or LOCK TABLES", MYF(0));
    return 1;
  }
  *static_cast<const char **>(save)= text;
  return 0;
}

void update_flush_log(MYSQL_THD, st_mysql_sys_var *, void *var, const void *value)
{
  unsigned int mode= *static_cast<const unsigned int *>(value);
  *static_cast<unsigned int *>(var)= mode;
  if (store)
    strata_set_flush_log(store, mode);
}

MYSQL_SYSVAR_ULONGLONG(block_cache_size, block_cache_size, PLUGIN_VAR_RQCMDARG,
                       "Memory for blocks of the sorted tables, in bytes. 0 chooses by the machine's memory.", nullptr,
                       update_block_cache_size, 0, 0, ULLONG_MAX >> 1, 0);
MYSQL_SYSVAR_ULONGLONG(memtable_budget, memtable_budget, PLUGIN_VAR_RQCMDARG,
                       "Memory for writes that are not in sorted tables yet, in bytes. 0 chooses by the machine's "
                       "memory.",
                       nullptr, update_memtable_budget, 0, 0, ULLONG_MAX >> 1, 0);
MYSQL_SYSVAR_ULONGLONG(log_segment_size, log_segment_size, PLUGIN_VAR_RQCMDARG | PLUGIN_VAR_READONLY,
                       "Size of one file of the write-ahead log, in bytes. 0 chooses.", nullptr, nullptr, 0, 0,
                       ULLONG_MAX >> 1, 0);
MYSQL_SYSVAR_UINT(flush_log_at_trx_commit, flush_log_at_trx_commit, PLUGIN_VAR_RQCMDARG,
                  "When commits become durable: 1 at each commit; 2 written at each commit and flushed each second; "
                  "0 written and flushed each second.",
                  nullptr, update_flush_log, 1, 0, 2, 0);
MYSQL_SYSVAR_UINT(background_threads, background_threads, PLUGIN_VAR_RQCMDARG | PLUGIN_VAR_READONLY,
                  "Threads that write and merge sorted tables. 0 chooses by the number of processors.", nullptr, nullptr,
                  0, 0, 1024, 0);
MYSQL_SYSVAR_BOOL(print_all_deadlocks, print_all_deadlocks, PLUGIN_VAR_OPCMDARG,
                  "Each deadlock in the error log, with the statements. SHOW ENGINE STRATA STATUS shows the latest one.", nullptr,
                  update_print_deadlocks, FALSE);
MYSQL_SYSVAR_BOOL(encrypt_log, encrypt_log, PLUGIN_VAR_OPCMDARG | PLUGIN_VAR_READONLY,
                  "Encrypt the write-ahead log, under key 1 of the server's encryption plugin.", nullptr, nullptr, FALSE);
const char *encrypt_tables_names[]= {"OFF", "ON", "FORCE", nullptr};
TYPELIB encrypt_tables_type= type_of(encrypt_tables_names);
MYSQL_SYSVAR_ENUM(encrypt_tables, encrypt_tables, PLUGIN_VAR_OPCMDARG,
                  "Encrypt tables that do not say ENCRYPTED=YES or NO. With FORCE new tables with ENCRYPTED=NO are refused.",
                  nullptr, update_encrypt_tables, 0, &encrypt_tables_type);
MYSQL_SYSVAR_ULONGLONG(history_retention, history_retention, PLUGIN_VAR_RQCMDARG,
                       "Seconds for which every moment of the past can be read with strata_read_timestamp. 0 keeps none.", nullptr,
                       update_history_retention, 0, 0, 10ULL * 365 * 86400, 0);
MYSQL_SYSVAR_BOOL(ttl_purge, ttl_purge, PLUGIN_VAR_OPCMDARG,
                  "Remove rows that have expired (TTL) in the background. They are not seen either way. Switched on, it begins with all "
                  "tables at once.",
                  nullptr, update_ttl_purge, TRUE);
MYSQL_THDVAR_STR(read_timestamp, PLUGIN_VAR_NOCMDOPT | PLUGIN_VAR_MEMALLOC,
                 "The moment of the past, a whole second, that the session's reads without locks see; empty: the present. Only tables "
                 "that were created since can be written to meanwhile.",
                 check_read_timestamp, nullptr, nullptr);
MYSQL_THDVAR_LONG(lock_wait_timeout, PLUGIN_VAR_RQCMDARG,
                  "Seconds a statement waits for a row lock before it fails. -1: as many as innodb_lock_wait_timeout says, "
                  "50 in a server without InnoDB. The server's lock_wait_timeout, which NOWAIT and WAIT n set, counts too: "
                  "the smaller wins.",
                  nullptr, nullptr, -1, -1, 1024L * 1024 * 1024, 0);

MYSQL_THDVAR_BOOL(snapshot_isolation, PLUGIN_VAR_OPCMDARG,
                  "At REPEATABLE READ and above, locking or changing a row that has changed since the transaction's "
                  "snapshot is an error (1020) that rolls the transaction back.",
                  nullptr, nullptr, STRATA_SNAPSHOT_ISOLATION_DEFAULT);

st_mysql_sys_var *system_variables[]= {
    MYSQL_SYSVAR(block_cache_size),   MYSQL_SYSVAR(memtable_budget),  MYSQL_SYSVAR(log_segment_size),
    MYSQL_SYSVAR(flush_log_at_trx_commit), MYSQL_SYSVAR(background_threads), MYSQL_SYSVAR(lock_wait_timeout),
    MYSQL_SYSVAR(encrypt_log),        MYSQL_SYSVAR(encrypt_tables),
    MYSQL_SYSVAR(print_all_deadlocks),
    MYSQL_SYSVAR(ttl_purge),
    MYSQL_SYSVAR(history_retention),  MYSQL_SYSVAR(read_timestamp),
    MYSQL_SYSVAR(snapshot_isolation), checkpoint_variables[0], checkpoint_variables[1], checkpoint_variables[2], nullptr};

/* SHOW STATUS: the row layer's metrics as Strata_<name>, in memory of the statement. */
int show_metrics(MYSQL_THD thd, st_mysql_show_var *var, void *, system_status_var *, enum_var_type)
{
  constexpr size_t MOST= 256;
  static SHOW_VAR none[]= {{nullptr, nullptr, SHOW_LONGLONG}};
  var->type= SHOW_ARRAY;
  var->value= none;
  if (!store)
    return 0;
  StrataMetric *metrics= static_cast<StrataMetric *>(thd_alloc(thd, MOST * sizeof(StrataMetric)));
  if (!metrics)
    return 0;
  size_t count= MY_MIN(strata_metrics(store, metrics, MOST), MOST);
  SHOW_VAR *rows= static_cast<SHOW_VAR *>(thd_alloc(thd, (count + 1) * sizeof(SHOW_VAR)));
  if (!rows)
    return 0;
  for (size_t i= 0; i < count; i++)
    rows[i]= {metrics[i].name, &metrics[i].value, SHOW_ULONGLONG};
  rows[count]= {nullptr, nullptr, SHOW_LONGLONG};
  var->value= rows;
  return 0;
}

SHOW_VAR status_variables[]= {SHOW_FUNC_ENTRY("Strata", show_metrics), {nullptr, nullptr, SHOW_LONGLONG}};

handler *create_handler(handlerton *hton, TABLE_SHARE *share, MEM_ROOT *mem_root)
{
  return new (mem_root) ha_strata(hton, share);
}

int init(void *p)
{
  if (!fits_server())
    return 1;
  handlerton *hton= static_cast<handlerton *>(p);
  engine= hton;
  hton->create= create_handler;
  hton->flags= HTON_SUPPORTS_EXTENDED_KEYS | HTON_SUPPORTS_FOREIGN_KEYS |
               HTON_REQUIRES_CLOSE_AFTER_TRUNCATE | HTON_TRUNCATE_REQUIRES_EXCLUSIVE_USE;
  hton->table_options= table_options;
  install_transaction_hooks(hton);
  install_costs(hton);
  ignore_db_dirs_append(DIRECTORY);

  register_instruments();
  StrataCallbacks callbacks= {};
  install_instrument_callbacks(&callbacks);
  install_collation_callbacks(&callbacks);
  install_transaction_callbacks(&callbacks);
  callbacks.identifier= sql_identifier;
  callbacks.child= ha_strata::child_table;
  callbacks.compute_child= ha_strata::compute_child;
  callbacks.statement_time= statement_time;
  callbacks.key_version= key_version;
  callbacks.key_bytes= key_bytes;
  callbacks.log= log_line;
  callbacks.killed= killed;
  StrataConfig config= {};
  config.dir= DIRECTORY;
  config.block_cache_bytes= block_cache_size;
  config.memtable_budget_bytes= memtable_budget;
  config.log_segment_bytes= log_segment_size;
  config.background_threads= background_threads;
  config.flush_log= flush_log_at_trx_commit;
  config.encrypt_log= encrypt_log;
  config.encrypt_tables= (uint32_t) encrypt_tables;
  config.history_retention_s= history_retention;
  config.connections= (uint32_t) MY_MIN(max_connections, (ulong) UINT_MAX32);
  if (strata_open(&config, &callbacks, &store) != STRATA_OK)
  {
    log_error("cannot open the database in " + std::string(DIRECTORY));
    store= nullptr;
    return 1;
  }
  strata_set_print_deadlocks(store, print_all_deadlocks);
  if (settle_prepared() != STRATA_OK)
  {
    log_error("cannot end the transactions that a crash has left prepared");
    strata_close(store);
    store= nullptr;
    return 1;
  }
  return 0;
}

int deinit(void *)
{
  if (!store)
    return 0;
  backup_store_ends();
  StrataStore *closing= store;
  store= nullptr;
  if (strata_close(closing) != STRATA_OK)
    log_error("closing the database");
  return 0;
}

st_mysql_storage_engine plugin_info= {MYSQL_HANDLERTON_INTERFACE_VERSION};

} // namespace

namespace {

/* innodb_lock_wait_timeout, if there is InnoDB, which cannot be unloaded. Sought until the server has started: engines are loaded one
   after the other. */
const sys_var *innodb_timeout(THD *thd)
{
  static std::atomic<const sys_var *> found{nullptr};
  static std::atomic<bool> is_known{false};
  if (is_known.load(std::memory_order_acquire))
    return found.load(std::memory_order_relaxed);
  bool is_last= mysqld_server_started;
  /* The last argument has the name of its opposite: true raises no error where there is no such variable. */
  sys_var *variable= find_sys_var(thd, STRING_WITH_LEN("innodb_lock_wait_timeout"), true);
  if (variable && variable->show_type() != SHOW_UINT && variable->show_type() != SHOW_ULONG)
    variable= nullptr;
  found.store(variable, std::memory_order_relaxed);
  if (variable || is_last)
    is_known.store(true, std::memory_order_release);
  return variable;
}

} // namespace

ulong lock_wait_timeout(THD *thd)
{
  long own= THDVAR(thd, lock_wait_timeout);
  if (own >= 0)
    return (ulong) own;
  const sys_var *innodb= innodb_timeout(thd);
  if (!innodb)
    return 50;
  const uchar *value= innodb->value_ptr(thd, OPT_SESSION, nullptr);
  return innodb->show_type() == SHOW_UINT ? *reinterpret_cast<const uint *>(value)
                                            : *reinterpret_cast<const ulong *>(value);
}

bool purges_expired() { return ttl_purge; }

bool snapshot_isolation(THD *thd) { return THDVAR(thd, snapshot_isolation); }

bool read_timestamp_is_set(THD *thd)
{
  const char *text= THDVAR(thd, read_timestamp);
  return text && *text;
}

bool read_timestamp(THD *thd, ulonglong *moment)
{
  const char *text= THDVAR(thd, read_timestamp);
  if (parse_moment(thd, text, moment))
    return true;
  my_error(ER_WRONG_VALUE_FOR_VAR, MYF(0), "strata_read_timestamp", text);
  return false;
}

} // namespace strata

maria_declare_plugin(strata){
    MYSQL_STORAGE_ENGINE_PLUGIN,
    &strata::plugin_info,
    "STRATA",
    "The Strata authors",
    "Transactional storage engine on a log-structured merge tree",
    PLUGIN_LICENSE_GPL,
    strata::init,
    strata::deinit,
    0x0001,
    strata::status_variables,
    strata::system_variables,
    "0.1",
    MariaDB_PLUGIN_MATURITY_EXPERIMENTAL},
    strata::schema_locks, strata::schema_lock_waits, strata::schema_transactions, strata::schema_metrics,
    strata::schema_foreign_keys, strata::schema_storage[4], strata::schema_storage[0], strata::schema_storage[1],
    strata::schema_storage[2], strata::schema_storage[3]
    maria_declare_plugin_end;
