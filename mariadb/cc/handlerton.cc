/* Copyright (C) 2026 the Strata authors. SPDX-License-Identifier: GPL-2.0-only */

/* Transactions as the server drives them: registration, two-phase commit, savepoints, crash recovery. */

#include "checkpoint.h"
#include "errors.h"
#include "glue.h"
#include "rpl_mi.h"
#include "slave.h"
#include <algorithm>
#include <mutex>
#include <string>
#include <unistd.h>

/* Exported by the server without a declaration in its headers. */
extern "C" int thd_binlog_format(const MYSQL_THD thd);
extern "C" bool thd_binlog_filter_ok(const MYSQL_THD thd);
extern "C" bool thd_sqlcom_can_generate_row_events(const MYSQL_THD thd);
extern void commit_checkpoint_notify_ha(void *cookie);
extern "C" int thd_need_wait_reports(const MYSQL_THD thd);
extern "C" int thd_rpl_deadlock_check(MYSQL_THD thd, MYSQL_THD other_thd);
extern "C" int thd_deadlock_victim_preference(const MYSQL_THD thd1, const MYSQL_THD thd2);
extern "C" int thd_non_transactional_update(const MYSQL_THD thd);

namespace strata {
namespace {

/* A connection's part of the engine. */
struct Connection
{
  StrataSession *session;
  bool ordered; /* commit_ordered() has fixed the place in the order: commit() only finishes */
  bool notes_position; /* the transaction is that in which a replica's position is noted, and nothing else */
};

Connection *connection_of(THD *thd) { return static_cast<Connection *>(thd_get_ha_data(thd, engine)); }

/* The end of the transaction, and not only of one of its statements? In autocommit mode both are one, and `all` is
   false. */
bool is_real(THD *thd, bool all) { return all || !in_transaction(thd); }

/* ---- XIDs as bytes: format, the lengths of both parts, the parts ---- */

std::string xid_to_bytes(const XID &xid)
{
  std::string bytes;
  uchar head[10];
  int8store(head, (longlong) xid.formatID);
  head[8]= (uchar) xid.gtrid_length;
  head[9]= (uchar) xid.bqual_length;
  bytes.append(reinterpret_cast<char *>(head), sizeof head);
  bytes.append(xid.data, xid.gtrid_length + xid.bqual_length);
  return bytes;
}

bool xid_from_bytes(const std::string &bytes, XID *xid)
{
  if (bytes.size() < 10)
    return false;
  const uchar *head= reinterpret_cast<const uchar *>(bytes.data());
  long gtrid= head[8], bqual= head[9];
  if (gtrid > MAXGTRIDSIZE || bqual > MAXBQUALSIZE || bytes.size() != (size_t) (10 + gtrid + bqual))
    return false;
  xid->set((long) sint8korr(head), bytes.data() + 10, gtrid, bytes.data() + 10 + gtrid, bqual);
  return true;
}

/* ---- the end of statements and transactions ---- */

/* Of a transaction in two phases: does the server let it commit in its turn? It does in tc.log, and in the binary log if that
   has anything of the transaction: then the log takes part in it. */
bool server_orders(THD *thd, bool all)
{
  if (!opt_bin_log)
    return true;
  const Ha_trx_info *part= all ? thd->transaction->all.ha_list : thd->transaction->stmt.ha_list;
  while (part && !is_binlog(part))
    part= part->next();
  return part != nullptr;
}

int prepare(HTON_FIRST THD *thd, bool all)
{
  Connection *connection= connection_of(thd);
  if (!connection || !is_real(thd, all))
    return 0;
  XID xid;
  thd_get_xid(thd, reinterpret_cast<MYSQL_XID *>(&xid));
  std::string bytes= xid_to_bytes(xid);
  int users= xid.get_my_xid() == 0;
  if (int error= told_error(strata_prepare(connection->session, reinterpret_cast<const uint8_t *>(bytes.data()),
                                           bytes.size(), users),
                            thd, ER_ERROR_DURING_COMMIT))
    return error;
  /* After the prepare, so that workers share its sync. */
  return unlikely(thd->rgi_slave) && !server_orders(thd, all) ? wait_for_earlier_commits(thd) : 0;
}

/* Runs on another connection's thread, under a global mutex: it must be short and cannot fail. */
void commit_ordered(HTON_FIRST THD *thd, bool all)
{
  Connection *connection= connection_of(thd);
  if (!connection || !is_real(thd, all))
    return;
  strata_commit_ordered(connection->session);
  connection->ordered= true;
}

int commit(HTON_FIRST THD *thd, bool all)
{
  Connection *connection= connection_of(thd);
  if (!connection)
    return 0;
  if (!is_real(thd, all))
    return handler_error(strata_statement_end(connection->session), thd);
  /* Of DDL: the server has lifted the order of commits for this transaction. */
  if (unlikely(connection->notes_position))
  {
    connection->notes_position= false;
    if (int error= wait_for_earlier_commits(thd))
    {
      if (strata_rollback(connection->session) != STRATA_OK)
        log_error("rollback");
      return error;
    }
  }
  bool ordered= connection->ordered;
  connection->ordered= false;
  /* Those who wait for this commit need its place in the order only. */
  if (ordered)
    thd_wakeup_subsequent_commits(thd, 0);
  int result= strata_commit(connection->session);
  if (result != STRATA_OK)
  {
    if (result != STRATA_INTERRUPTED) /* killed while it waited for memory: the user's own wish */
      log_error("commit");
    return told_error(result, thd, ER_ERROR_DURING_COMMIT);
  }
  if (!ordered)
    thd_wakeup_subsequent_commits(thd, 0);
  return 0;
}

int rollback(HTON_FIRST THD *thd, bool all)
{
  Connection *connection= connection_of(thd);
  if (!connection)
    return 0;
  if (!is_real(thd, all))
    return handler_error(strata_statement_rollback(connection->session), thd);
  connection->ordered= connection->notes_position= false;
  return told_error(strata_rollback(connection->session), thd, ER_ERROR_DURING_ROLLBACK);
}

int savepoint_set(HTON_FIRST THD *thd, void *memory)
{
  Connection *connection= connection_of(thd);
  uint64_t savepoint= 0;
  if (!connection)
    return 0;
  int result= strata_savepoint_set(connection->session, &savepoint);
  memcpy(memory, &savepoint, sizeof savepoint); /* the server's memory need not be aligned */
  return handler_error(result, thd);
}

int savepoint_rollback(HTON_FIRST THD *thd, void *memory)
{
  Connection *connection= connection_of(thd);
  uint64_t savepoint;
  if (!connection)
    return 0;
  memcpy(&savepoint, memory, sizeof savepoint);
  return handler_error(strata_savepoint_rollback(connection->session, savepoint), thd);
}

int savepoint_release(HTON_FIRST THD *, void *) { return 0; }

/* ---- connections ---- */

int close_connection(HTON_FIRST THD *thd)
{
  Connection *connection= connection_of(thd);
  if (!connection)
    return 0;
  backup_connection_ends(thd);
  forget_connection(thd, engine);
  strata_session_free(connection->session); /* a prepared transaction lives on without it */
  delete connection;
  return 0;
}

/* Runs on the killer's thread, under LOCK_thd_data, which keeps close_connection() away. */
void kill_query(handlerton *, THD *thd, thd_kill_levels)
{
  if (Connection *connection= connection_of(thd))
    strata_session_kill(connection->session);
}

int start_consistent_snapshot(HTON_FIRST THD *thd)
{
  if (!session_of(thd))
    return HA_ERR_OUT_OF_MEM;
  uint32_t isolation= isolation_of(thd);
  trans_register_ha(thd, false, engine, 0);
  trans_register_ha(thd, true, engine, 0);
  /* Below REPEATABLE READ each statement takes a snapshot of its own: there is nothing to do. */
  if (read_timestamp_is_set(thd))
  {
    StrataSession *session;
    bool no_wait;
    return begin_statement(thd, &session, &no_wait);
  }
  return handler_error(strata_consistent_snapshot(connection_of(thd)->session, isolation), thd);
}

/* ---- waits for row locks ---- */

MYSQL_THD thd_of(const void *thd) { return static_cast<MYSQL_THD>(const_cast<void *>(thd)); }

/* Of this thread's connection: 0 nothing, 1 that it waits, 2 also for whom. For whom matters to the workers of a replica,
   and where group commit pauses for more to come. */
int wants_waits()
{
  THD *thd= current_thd;
  if (!thd || !thd_need_wait_reports(thd))
    return 0;
  return thd->slave_thread || opt_binlog_commit_wait_count ? 2 : 1;
}

/* If the other one must commit later, the server has it killed, by another thread: the wait goes on until then. */
void waits(const void *ahead) { thd_rpl_deadlock_check(current_thd, thd_of(ahead)); }

/* Of two that replication does not put in order, the one gives way that can be rolled back as a whole: not one that has written to tables without
   transactions. */
int victim(const void *a, const void *b)
{
  int preferred= thd_deadlock_victim_preference(thd_of(a), thd_of(b));
  return preferred ? preferred : thd_non_transactional_update(thd_of(a)) - thd_non_transactional_update(thd_of(b));
}

size_t current_binlog(char *name, size_t cap)
{
  LOG_INFO info;
  if (!opt_bin_log || !mysql_bin_log.is_open() || mysql_bin_log.get_current_log(&info))
    return 0;
  size_t length= MY_MIN(strlen(info.log_file_name), cap);
  memcpy(name, info.log_file_name, length);
  return length;
}

/* ---- the purge of expired rows ---- */

/* How long a transaction of a source may take to commit what it has read: until then a replica keeps the rows. */
constexpr uint64_t SLOWEST_TRANSACTION= 3600;

/* A row that has expired here may have been prolonged on the source, by an event that is yet to come. So a replica removes what had
   expired some time before the last event that it has executed, of whichever source is furthest behind. Who has a source configured is a
   replica, whether or not it replicates at the moment. */
uint64_t purge_until(uint64_t present)
{
  KnownThread thread;
  if (thread.failed())
    return 0;
  uint64_t until= present;
  mysql_mutex_lock(&LOCK_active_mi);
  if (!master_info_index)
    until= 0; /* the server starts or ends */
  else
    for (ulong i= 0; i < master_info_index->master_info_hash.records; i++)
    {
      Master_info *source= reinterpret_cast<Master_info *>(my_hash_element(&master_info_index->master_info_hash, i));
      mysql_mutex_lock(&source->data_lock);
      bool is_configured= source->host[0] != 0;
      mysql_mutex_unlock(&source->data_lock);
      if (!is_configured)
        continue;
      mysql_mutex_lock(&source->rli.data_lock);
      uint64_t executed= (uint64_t) source->rli.last_master_timestamp;
      mysql_mutex_unlock(&source->rli.data_lock);
      until= std::min(until, executed > SLOWEST_TRANSACTION ? executed - SLOWEST_TRANSACTION : 0);
    }
  mysql_mutex_unlock(&LOCK_active_mi);
  return until;
}

/* ---- recovery ---- */

/* The server walks the prepared transactions twice at a start after a crash; each walk lists all that are left. */
struct RecoveryWalk
{
  std::mutex mutex;
  bool running= false;
  size_t next= 0;
  std::vector<std::string> xids;
} recovery_walk;

void collect_xid(void *to, const uint8_t *xid, size_t length)
{
  static_cast<std::vector<std::string> *>(to)->emplace_back(reinterpret_cast<const char *>(xid), length);
}

int recover(HTON_FIRST XID *list, uint capacity)
{
  if (!store || !list || !capacity)
    return 0;
  RecoveryWalk &walk= recovery_walk;
  std::lock_guard<std::mutex> guard(walk.mutex);
  if (!walk.running)
  {
    walk.xids.clear();
    walk.next= 0;
    if (strata_prepared_list(store, collect_xid, &walk.xids) != STRATA_OK)
    {
      log_error("listing prepared transactions");
      return 0;
    }
  }
  uint filled= 0;
  while (filled < capacity && walk.next < walk.xids.size())
  {
    if (xid_from_bytes(walk.xids[walk.next++], &list[filled]))
      filled++;
    else
      sql_print_error("Strata: a prepared transaction has an identifier that is not the server's");
  }
  walk.running= filled == capacity;
  return (int) filled;
}

int finish_by_xid(XID *xid, int (*finish)(StrataStore *, const uint8_t *, size_t))
{
  if (!store)
    return XAER_NOTA;
  std::string bytes= xid_to_bytes(*xid);
  switch (finish(store, reinterpret_cast<const uint8_t *>(bytes.data()), bytes.size()))
  {
  case STRATA_OK: return 0;
  case STRATA_NO_XID: return XAER_NOTA;
  default: log_error("finishing a prepared transaction"); return XAER_RMERR;
  }
}

int commit_by_xid(HTON_FIRST XID *xid) { return finish_by_xid(xid, strata_commit_by_xid); }
int rollback_by_xid(HTON_FIRST XID *xid) { return finish_by_xid(xid, strata_rollback_by_xid); }

/* ---- the whole database ---- */

bool flush_logs(handlerton *)
{
  if (store && strata_sync(store) != STRATA_OK)
  {
    log_error("flushing the log");
    return true;
  }
  return backup_flushes(current_thd);
}

void commit_checkpoint_request(void *cookie)
{
  if (store && strata_sync(store) != STRATA_OK)
  {
    log_error("flushing the log"); /* without the notice the binary logs are kept for recovery */
    return;
  }
  /* Once the notice is given the file that was written before may be purged. RESET MASTER asks before it removes all. */
  strata_binlog_rotated(store);
  commit_checkpoint_notify_ha(cookie);
}

/* At the first stage of a backup. */
void prepare_for_backup() { backup_begins(); }

/* All sessions have ended, and the server has not yet marked its own log as closed. */
void pre_shutdown()
{
  if (store)
    strata_purge_stop(store);
  if (!store || strata_sync(store) == STRATA_OK)
    return;
  /* The log could not take down what became of prepared transactions. The server must decide about them again when it
     starts, which it does only if its own log was not closed. */
  log_error("the server ends as in a crash, so that it recovers when it is started again");
  _exit(1);
}

void drop_database(handlerton *, char *path)
{
  if (store && strata_database_drop(store, path) != STRATA_OK)
    log_error("dropping the rest of a database");
}

int ddl_recovery_done(handlerton *)
{
  if (store && strata_temporary_drop_all(store) != STRATA_OK)
    log_error("dropping tables that the last run has left");
  if (store && strata_purge_start(store, purges_expired()) != STRATA_OK)
    log_error("starting the purge");
  return 0;
}

bool show_status(handlerton *, THD *thd, stat_print_fn *print, ha_stat_type type)
{
  if (type != HA_ENGINE_STATUS || !store)
    return false;
  std::string text;
  auto append= [](void *to, const char *piece, size_t length) { static_cast<std::string *>(to)->append(piece, length); };
  if (strata_status(store, append, &text) != STRATA_OK)
  {
    log_error("engine status");
    return true;
  }
  return print(thd, STRING_WITH_LEN("STRATA"), STRING_WITH_LEN(""), text.data(), text.size());
}

} // namespace

bool in_transaction(THD *thd) { return thd_test_options(thd, OPTION_NOT_AUTOCOMMIT | OPTION_BEGIN); }

uint32_t isolation_of(THD *thd) { return (uint32_t) thd_tx_isolation(thd); }

/* NOWAIT and WAIT n set the server's timeout for the statement. */
uint64_t lock_wait_us(THD *thd)
{
  return std::min<uint64_t>(lock_wait_timeout(thd), thd->variables.lock_wait_timeout) * 1000000;
}

/* The server keeps others from such tables, but for prepared transactions whose session has gone. With autocommit the lock would
   end at once. */
bool locks_whole_tables(THD *thd)
{
  return thd->in_lock_tables && thd_sql_command(thd) == SQLCOM_LOCK_TABLES && thd_test_options(thd, OPTION_NOT_AUTOCOMMIT);
}

uint32_t statement_kind(THD *thd)
{
  switch (thd_sql_command(thd))
  {
  case SQLCOM_SELECT: return STRATA_QUERY;
  case SQLCOM_INSERT:
  case SQLCOM_INSERT_SELECT:
  case SQLCOM_REPLACE:
  case SQLCOM_REPLACE_SELECT:
  case SQLCOM_UPDATE:
  case SQLCOM_UPDATE_MULTI:
  case SQLCOM_DELETE:
  case SQLCOM_DELETE_MULTI:
  case SQLCOM_LOAD:
  case SQLCOM_CREATE_TABLE: /* ... SELECT */
  case SQLCOM_SET_OPTION:
  case SQLCOM_DO:
  case SQLCOM_CALL: return STRATA_CHANGE;
  default: return STRATA_OTHER;
  }
}

bool drops_whole_tables(THD *thd)
{
  switch (thd_sql_command(thd))
  {
  case SQLCOM_DROP_TABLE:
  case SQLCOM_DROP_DB:
  case SQLCOM_CREATE_TABLE: return true; /* the last: OR REPLACE */
  default: return false;
  }
}

bool cannot_log_statement(THD *thd, handler::Table_flags flags)
{
  if ((flags & HA_BINLOG_STMT_CAPABLE) || thd_binlog_format(thd) != BINLOG_FORMAT_STMT || !thd_binlog_filter_ok(thd) ||
      !thd_sqlcom_can_generate_row_events(thd))
    return false;
  my_error(ER_BINLOG_STMT_MODE_AND_ROW_ENGINE, MYF(0),
           " STRATA logs rows only at READ COMMITTED and READ UNCOMMITTED.");
  return true;
}

StrataSession *session_of(THD *thd)
{
  if (Connection *connection= connection_of(thd))
    return connection->session;
  Connection *connection= new (std::nothrow) Connection();
  if (!connection || strata_session_new(store, thd, &connection->session) != STRATA_OK)
  {
    delete connection;
    my_error(ER_OUT_OF_RESOURCES, MYF(0));
    return nullptr;
  }
  strata_session_connection(connection->session, thd_get_thread_id(thd));
  thd_set_ha_data(thd, engine, connection); /* from now on kills reach the session */
  return connection->session;
}

int wait_for_earlier_commits(THD *thd)
{
  if (!thd || !thd->rgi_slave || !thd->rgi_slave->commit_orderer.wait_for_prior_commit(thd))
    return 0;
  return HA_ERR_ABORTED_BY_USER; /* with the reason pushed */
}

void writes_positions(THD *thd)
{
  if (Connection *connection= connection_of(thd))
    connection->notes_position= !in_transaction(thd);
}

/* If a transaction begins now, it reads the moment that the session has chosen. */
static int begin_past(THD *thd, StrataSession *session)
{
  ulonglong moment;
  if (!read_timestamp(thd, &moment))
    return HA_ERR_GENERIC;
  if (strata_read_past(session, moment) == STRATA_OK)
    return 0;
  String text;
  if (!error_message(&text))
    my_printf_error(ER_GET_ERRMSG, "Strata: %s", MYF(0), text.c_ptr_safe());
  return HA_ERR_GENERIC;
}

int begin_statement(THD *thd, StrataSession **session, bool *no_wait)
{
  if (!(*session= session_of(thd)))
    return HA_ERR_OUT_OF_MEM;
  trans_register_ha(thd, false, engine, 0);
  if (in_transaction(thd))
    trans_register_ha(thd, true, engine, 0);
  uint64_t wait_us= lock_wait_us(thd);
  *no_wait= wait_us == 0;
  uint32_t how= isolation_of(thd);
  if (snapshot_isolation(thd))
    how|= STRATA_SNAPSHOT_ISOLATION;
  if (thd_test_options(thd, OPTION_NO_FOREIGN_KEY_CHECKS))
    how|= STRATA_NO_FOREIGN_KEY_CHECKS;
  /* An event of rows, on a replica or out of mysqlbinlog, names rows that were there when it was written. */
  if (unlikely(thd->lex->is_stmt_row_injection()))
    how|= STRATA_SEES_EXPIRED;
  if (unlikely(read_timestamp_is_set(thd)))
    if (int error= begin_past(thd, *session))
      return error;
  int result= strata_statement_begin(*session, how, wait_us, (uint64_t) thd->query_start());
  if (likely(result == STRATA_OK))
    return 0;
  int error= handler_error(result, thd);
  String text;
  /* The server would say that it cannot lock a file. */
  if (result == STRATA_POISONED && !error_message(&text))
    my_error(ER_GET_ERRMSG, MYF(0), error, text.c_ptr_safe(), "STRATA");
  return error;
}

void install_transaction_callbacks(StrataCallbacks *callbacks)
{
  callbacks->purge_until= purge_until;
  callbacks->wants_waits= wants_waits;
  callbacks->waits= waits;
  callbacks->victim= victim;
  callbacks->binlog= current_binlog;
  callbacks->query= [](const void *thd, char *text, size_t cap) {
    THD *connection= thd ? const_cast<THD *>(static_cast<const THD *>(thd)) : current_thd;
    return connection ? thd_query_safe(connection, text, cap) : 0;
  };
}

int settle_prepared()
{
  /* What --tc-heuristic-recover says is the administrator's decision. The server's log is chosen after the engines of its start
     are loaded. */
  if (tc_heuristic_recover)
    return STRATA_OK;
  return strata_settle_prepared(store, opt_bin_log ? mysql_bin_log.get_index_fname() : nullptr, opt_tc_log_file,
                                tc_log != nullptr);
}

void install_transaction_hooks(handlerton *hton)
{
  hton->savepoint_offset= sizeof(uint64_t);
  hton->close_connection= close_connection;
  hton->kill_query= kill_query;
  hton->savepoint_set= savepoint_set;
  hton->savepoint_rollback= savepoint_rollback;
  hton->savepoint_release= savepoint_release;
  hton->prepare= prepare;
  hton->commit_ordered= commit_ordered;
  hton->commit= commit;
  hton->rollback= rollback;
  hton->recover= recover;
  hton->commit_by_xid= commit_by_xid;
  hton->rollback_by_xid= rollback_by_xid;
  hton->commit_checkpoint_request= commit_checkpoint_request;
  hton->start_consistent_snapshot= start_consistent_snapshot;
  hton->flush_logs= flush_logs;
  hton->pre_shutdown= pre_shutdown;
  hton->prepare_for_backup= prepare_for_backup;
  hton->drop_database= drop_database;
  hton->signal_ddl_recovery_done= ddl_recovery_done;
  hton->check_version= check_version;
  hton->show_status= show_status;
}

} // namespace strata
