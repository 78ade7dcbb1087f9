/* Copyright (C) 2026 the Strata authors. SPDX-License-Identifier: GPL-2.0-only */

#include "errors.h"
#include "strata.h"

namespace strata {

/* The server's texts for these name neither file nor offset: SHOW WARNINGS does. */
static int with_details(int error, uint number= ER_GET_ERRMSG, const char *format= "%s")
{
  if (THD *thd= current_thd)
  {
    String text;
    if (!error_message(&text))
      push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, number, format, text.c_ptr_safe());
  }
  return error;
}

int error_of_failure(int result, THD *thd)
{
  switch (result)
  {
  case STRATA_NOT_FOUND: return HA_ERR_KEY_NOT_FOUND;
  case STRATA_END: return HA_ERR_END_OF_FILE;
  case STRATA_DUPLICATE: return HA_ERR_FOUND_DUPP_KEY;
  case STRATA_LOCK_TIMEOUT:
  case STRATA_LOCK_BUSY:
    /* The statement fails, also one with IGNORE; the transaction goes on. */
    if (thd)
      thd->mark_transaction_to_rollback(false);
    return HA_ERR_LOCK_WAIT_TIMEOUT;
  case STRATA_DEADLOCK:
    if (thd)
      thd->mark_transaction_to_rollback(true);
    return HA_ERR_LOCK_DEADLOCK;
  case STRATA_CONFLICT:
    if (thd)
      thd->mark_transaction_to_rollback(true);
    return HA_ERR_RECORD_CHANGED;
  case STRATA_INTERRUPTED:
    /* Of a kill that the server knows nothing of print_error() says nothing: the statement would pass for done. */
    if (thd && !statement_killed(thd))
      my_error(ER_QUERY_INTERRUPTED, MYF(0));
    return HA_ERR_ABORTED_BY_USER;
  case STRATA_CORRUPTION: return with_details(HA_ERR_CRASHED);
  case STRATA_DISK_FULL: return with_details(HA_ERR_DISK_FULL);
  case STRATA_NO_TABLE: return HA_ERR_NO_SUCH_TABLE;
  case STRATA_TABLE_EXISTS: return HA_ERR_TABLE_EXIST;
  case STRATA_ROW_TOO_LONG: return HA_ERR_TO_BIG_ROW;
  case STRATA_SAME: return HA_ERR_RECORD_IS_THE_SAME;
  case STRATA_AUTOINC_EXHAUSTED: return HA_ERR_AUTOINC_READ_FAILED;
  case STRATA_TABLE_CHANGED: return HA_ERR_TABLE_DEF_CHANGED;
  case STRATA_NO_REFERENCED_ROW: return HA_ERR_NO_REFERENCED_ROW;
  case STRATA_ROW_IS_REFERENCED: return HA_ERR_ROW_IS_REFERENCED;
  case STRATA_CASCADE_TOO_DEEP: return HA_ERR_FK_DEPTH_EXCEEDED;
  case STRATA_FOREIGN_DUPLICATE: return HA_ERR_FOREIGN_DUPLICATE_KEY;
  case STRATA_FOREIGN_UNFIT_PARENT:
  case STRATA_FOREIGN_NO_NULL:
  case STRATA_CANNOT_ADD_FOREIGN: return HA_ERR_CANNOT_ADD_FOREIGN;
  case STRATA_INDEX_OF_FOREIGN: return HA_ERR_CANNOT_ADD_FOREIGN; /* the server's own asks for an open table */
  case STRATA_WRONG_OPTION: return with_details(HA_WRONG_CREATE_OPTION, HA_WRONG_CREATE_OPTION, "Strata: %s");
  case STRATA_FOREIGN_NAME_TAKEN: return HA_ERR_FOUND_DUPP_KEY;
  default: return ERROR_MESSAGE; /* I/O, poisoned, invalid, internal: the text tells */
  }
}

int told_error(int result, THD *thd, uint server_error)
{
  int error= handler_error(result, thd);
  switch (result)
  {
  case STRATA_OK:
  case STRATA_LOCK_TIMEOUT:
  case STRATA_LOCK_BUSY:
  case STRATA_DEADLOCK:
  case STRATA_CONFLICT: return error;
  case STRATA_INTERRUPTED:
    /* Of a commit that was killed the server would tell this error's number. */
    if (thd && !thd->is_error())
      thd->send_kill_message();
    return error;
  }
  String text;
  if (!error_message(&text))
    my_printf_error(server_error, "Strata: %s", MYF(0), text.c_ptr_safe());
  return error;
}

bool error_message(String *out)
{
  char text[512];
  size_t length= strata_error_message(text, sizeof text);
  if (length > sizeof text - 1)
    length= sizeof text - 1;
  return out->copy(text, length, &my_charset_utf8mb3_general_ci);
}

int unsupported_option(const char *feature)
{
  my_error(ER_ILLEGAL_HA_CREATE_OPTION, MYF(0), "STRATA", feature);
  return HA_WRONG_CREATE_OPTION;
}

void warn_option_ignored(const char *option)
{
  push_warning_printf(current_thd, Sql_condition::WARN_LEVEL_WARN, WARN_OPTION_IGNORED,
                      ER_THD(current_thd, WARN_OPTION_IGNORED), option);
}

void log_error(const std::string &what)
{
  char text[512];
  size_t length= strata_error_message(text, sizeof text - 1);
  if (length > sizeof text - 1)
    length= sizeof text - 1;
  text[length]= 0;
  sql_print_error("Strata: %s: %s", what.c_str(), text);
}

} // namespace strata
