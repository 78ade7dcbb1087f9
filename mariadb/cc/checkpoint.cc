/* Copyright (C) 2026 the Strata authors. SPDX-License-Identifier: GPL-2.0-only */

/* Checkpoints of the database, and the part that the engine takes in a backup of the server.

   A checkpoint shows the database at a moment at which no transaction commits, so that it has exactly what the binary log has up to
   its present end. The server's own protocol sees to that, BACKUP STAGE, whose stage BLOCK_COMMIT lets running commits end and
   keeps others waiting.

     SET GLOBAL strata_create_checkpoint= 'DIR'  makes one at once: files are linked, then the statement goes through the stages by
                                                 itself, notes the moment, and completes the copy while others commit again. Within
                                                 BACKUP STAGE BLOCK_COMMIT of the same connection that is the moment.
     SET GLOBAL strata_backup_checkpoint= 'DIR'  makes one for the next backup by files, of whatever connection: the moment is its
                                                 FLUSH ENGINE LOGS in the stage BLOCK_COMMIT, at which mariadb-backup notes the
                                                 server's position. Set to '' afterwards the variable completes the copy.

   The checks of the variables do the work: their updates run under a mutex of the server over all variables.

   A backup by files for which no checkpoint is being made has no row of this engine. Its FLUSH ENGINE LOGS fails: mariadb-backup ends
   with an error there, instead of "completed OK!". */

#include "checkpoint.h"
#include "errors.h"
#include "glue.h"
#include "backup.h" /* the server's */
#include "sql_repl.h"
#include <mutex>
#include <string>
#include <utility>

namespace strata {
namespace {

/* The checkpoint of the next backup. */
struct Awaited
{
  StrataCheckpoint *checkpoint= nullptr;
  std::string note;          /* once the moment is noted */
  my_thread_id owner= 0;     /* the connection that wants it */
  my_thread_id backup= 0;    /* the connection whose backup it belongs to; 0: none yet */
  bool is_failed= false;
};

std::mutex mutex;
Awaited awaited;
char nothing[]= "";
char *create_checkpoint= nothing;
char *backup_checkpoint= nothing;
my_bool require_checkpoint;
/* This thread goes through the stages of a backup to make a checkpoint. */
thread_local bool makes_checkpoint;

/* Where the server is, while nobody commits: what the file CHECKPOINT says. */
std::string position()
{
  LOG_INFO info;
  String text;
  std::string note= "strata checkpoint 1\n";
  if (opt_bin_log && mysql_bin_log.is_open() && !mysql_bin_log.get_current_log(&info))
  {
    const char *name= info.log_file_name + dirname_length(info.log_file_name);
    note.append("binlog_file=").append(name).append("\nbinlog_position=").append(std::to_string(info.pos));
    if (!mysql_bin_log.append_state_pos(&text))
      note.append("\ngtid_binlog_pos=").append(text.ptr(), text.length());
    note.append("\n");
  }
  text.length(0);
  if (!rpl_append_gtid_state(&text, true))
    note.append("gtid_current_pos=").append(text.ptr(), text.length()).append("\n");
  return note;
}

/* Tells the last error of the row layer: true. */
bool refused()
{
  String text;
  if (!error_message(&text))
    my_printf_error(ER_UNKNOWN_ERROR, "Strata: %s", MYF(0), text.c_ptr_safe());
  return true;
}

/* Notes the moment in a checkpoint, while nobody commits: true if that fails. */
bool fix(StrataCheckpoint *checkpoint, std::string *note)
{
  *note= position();
  return strata_checkpoint_fix(checkpoint) != STRATA_OK && refused();
}

/* Notes the moment, going through the stages of a backup unless the connection has done so. */
bool fix_in_stages(THD *thd, StrataCheckpoint *checkpoint, std::string *note)
{
  if (thd->current_backup_stage == BACKUP_LOCK_COMMIT)
    return fix(checkpoint, note);
  if (thd->current_backup_stage != BACKUP_FINISHED)
  {
    my_printf_error(ER_UNKNOWN_ERROR, "Strata: in a backup a checkpoint can be made in the stage BLOCK_COMMIT only", MYF(0));
    return true;
  }
  makes_checkpoint= true;
  bool failed= run_backup_stage(thd, BACKUP_START) || run_backup_stage(thd, BACKUP_LOCK_COMMIT) || fix(checkpoint, note);
  if (thd->current_backup_stage != BACKUP_FINISHED)
    failed|= run_backup_stage(thd, BACKUP_END);
  makes_checkpoint= false;
  return failed;
}

bool make(THD *thd, const char *dir)
{
  if (thd->in_active_multi_stmt_transaction() || thd->locked_tables_mode)
  {
    my_error(ER_LOCK_OR_ACTIVE_TRANSACTION, MYF(0));
    return true;
  }
  StrataCheckpoint *checkpoint;
  if (strata_checkpoint_begin(store, dir, &checkpoint) != STRATA_OK)
    return refused();
  std::string note;
  if (fix_in_stages(thd, checkpoint, &note))
  {
    strata_checkpoint_free(checkpoint);
    return true;
  }
  return strata_checkpoint_finish(checkpoint, note.c_str()) != STRATA_OK && refused();
}

/* Gives the awaited checkpoint up. */
Awaited take()
{
  std::lock_guard<std::mutex> guard(mutex);
  Awaited taken= awaited;
  awaited= Awaited();
  return taken;
}

bool await(THD *thd, const char *dir)
{
  strata_checkpoint_free(take().checkpoint);
  Awaited next;
  if (strata_checkpoint_begin(store, dir, &next.checkpoint) != STRATA_OK)
    return refused();
  if (!session_of(thd)) /* the end of the connection is to be told */
  {
    strata_checkpoint_free(next.checkpoint);
    return true;
  }
  next.owner= thd->thread_id;
  std::lock_guard<std::mutex> guard(mutex);
  std::swap(awaited, next);
  /* Of two at once the later one stays. */
  strata_checkpoint_free(next.checkpoint);
  return false;
}

bool complete()
{
  Awaited done= take();
  if (!done.checkpoint)
  {
    if (!done.is_failed)
      return false;
    my_printf_error(ER_UNKNOWN_ERROR, "Strata: the checkpoint of the backup has failed", MYF(0));
    return true;
  }
  if (!done.backup)
  {
    strata_checkpoint_free(done.checkpoint);
    my_printf_error(ER_UNKNOWN_ERROR, "Strata: no backup has come to its FLUSH ENGINE LOGS since strata_backup_checkpoint was set",
                    MYF(0));
    return true;
  }
  return strata_checkpoint_finish(done.checkpoint, done.note.c_str()) != STRATA_OK && refused();
}

/* The text that a variable is set to, in the statement's memory; null: NULL, or out of memory, with the error pushed. */
char *text_of(MYSQL_THD thd, st_mysql_value *value)
{
  char buffer[FN_REFLEN];
  int length= sizeof buffer;
  const char *text= value->val_str(value, buffer, &length);
  if (!text)
  {
    my_printf_error(ER_WRONG_ARGUMENTS, "Strata: the name of a directory is expected, not NULL", MYF(0));
    return nullptr;
  }
  return thd_strmake(thd, text, length);
}

bool is_open()
{
  if (!store)
    my_printf_error(ER_UNKNOWN_ERROR, "Strata: the database is not open", MYF(0));
  return store;
}

int check_create(MYSQL_THD thd, st_mysql_sys_var *, void *save, st_mysql_value *value)
{
  char *dir= text_of(thd, value);
  *static_cast<const char **>(save)= dir;
  return !dir || (*dir && (!is_open() || make(thd, dir)));
}

int check_backup(MYSQL_THD thd, st_mysql_sys_var *, void *save, st_mysql_value *value)
{
  char *dir= text_of(thd, value);
  *static_cast<const char **>(save)= dir;
  return !dir || !is_open() || (*dir ? await(thd, dir) : complete());
}

/* The variables show nothing: what was asked for is done or awaited, and says so by the statement's end. */
void update_nothing(MYSQL_THD, st_mysql_sys_var *, void *, const void *) {}

MYSQL_SYSVAR_STR(create_checkpoint, create_checkpoint, PLUGIN_VAR_NOCMDOPT,
                 "Set to the name of a directory, makes a copy of all tables of the engine there, with the server's position "
                 "beside it. The directory must not exist. Its name is absolute and outside of the data directory, or has no slash "
                 "and begins with 'checkpoint': then it lies in the engine's directory.",
                 check_create, update_nothing, "");
MYSQL_SYSVAR_STR(backup_checkpoint, backup_checkpoint, PLUGIN_VAR_NOCMDOPT,
                 "As strata_create_checkpoint, for the next backup: the copy shows the moment of its FLUSH ENGINE LOGS in BACKUP STAGE "
                 "BLOCK_COMMIT. Set to '' afterwards it completes the copy.",
                 check_backup, update_nothing, "");
MYSQL_SYSVAR_BOOL(backup_requires_checkpoint, require_checkpoint, PLUGIN_VAR_OPCMDARG,
                  "A backup by files (mariadb-backup) fails at its FLUSH ENGINE LOGS if there are tables of the engine and "
                  "strata_backup_checkpoint was not set for it: they would be missing from it.",
                  nullptr, nullptr, 1);

} // namespace

st_mysql_sys_var *const checkpoint_variables[3]= {MYSQL_SYSVAR(create_checkpoint), MYSQL_SYSVAR(backup_checkpoint),
                                                  MYSQL_SYSVAR(backup_requires_checkpoint)};

void backup_begins()
{
  if (makes_checkpoint || !store || !strata_has_tables(store))
    return;
  std::lock_guard<std::mutex> guard(mutex);
  if (!awaited.checkpoint || awaited.backup)
    sql_print_warning("Strata: a backup begins. Tables of ENGINE=STRATA are not in it: mariadb-backup does not copy them. Use "
                      "strata-backup, or mariadb-dump --single-transaction.");
}

bool backup_flushes(THD *thd)
{
  if (!store || !thd || thd->current_backup_stage != BACKUP_LOCK_COMMIT)
    return false;
  std::lock_guard<std::mutex> guard(mutex);
  if (awaited.checkpoint && !awaited.backup)
  {
    awaited.backup= thd->thread_id;
    if (!fix(awaited.checkpoint, &awaited.note))
      return false;
    strata_checkpoint_free(awaited.checkpoint);
    awaited.checkpoint= nullptr;
    awaited.is_failed= true;
    return true;
  }
  if ((awaited.checkpoint && awaited.backup == thd->thread_id) || !require_checkpoint || !strata_has_tables(store))
    return false;
  my_printf_error(ER_UNKNOWN_ERROR,
                  "Strata: the tables of ENGINE=STRATA would be missing from this backup. Use strata-backup, which calls "
                  "mariadb-backup, or SET GLOBAL strata_backup_requires_checkpoint= OFF for a backup without them",
                  MYF(0));
  return true;
}

void backup_connection_ends(THD *thd)
{
  StrataCheckpoint *left= nullptr;
  {
    std::lock_guard<std::mutex> guard(mutex);
    if (awaited.owner == thd->thread_id)
    {
      left= awaited.checkpoint;
      awaited= Awaited();
    }
  }
  strata_checkpoint_free(left);
}

void backup_store_ends() { strata_checkpoint_free(take().checkpoint); }

} // namespace strata
