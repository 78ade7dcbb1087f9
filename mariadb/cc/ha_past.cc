/* Copyright (C) 2026 the Strata authors. SPDX-License-Identifier: GPL-2.0-only */

/* Statements of a session that reads the past (strata_read_timestamp). */

#include "errors.h"
#include "glue.h"
#include "ha_strata.h"

/* The transaction reads the past: nothing is locked there, and only what was not there is written to. */
int ha_strata::begin_past(THD *thd, StrataSession *session, Request request, Locking *locking)
{
  int error= 0;
  switch (thd_sql_command(thd))
  {
  case SQLCOM_ALTER_TABLE:
  case SQLCOM_CREATE_INDEX:
  case SQLCOM_DROP_INDEX:
  case SQLCOM_TRUNCATE:
  case SQLCOM_OPTIMIZE:
  case SQLCOM_ANALYZE:
  case SQLCOM_REPAIR: error= ER_CANT_EXECUTE_IN_READ_ONLY_TRANSACTION;
  }
  if (!error && request.request == STRATA_READ_SHARED && table->s->tmp_table == NO_TMP_TABLE)
    error= ER_CANT_EXECUTE_IN_READ_ONLY_TRANSACTION;
  if (error)
  {
    my_printf_error(error, "Strata: the session reads the past (strata_read_timestamp): it does not lock and change what was there",
                    MYF(0));
    return HA_ERR_GENERIC;
  }
  if (request.request == STRATA_WRITE)
  {
    if (table->s->tmp_table == NO_TMP_TABLE && strata_check_past_write(session, table_) != STRATA_OK)
    {
      String text;
      if (!strata::error_message(&text))
        my_printf_error(ER_CANT_EXECUTE_IN_READ_ONLY_TRANSACTION, "Strata: %s", MYF(0), text.c_ptr_safe());
      return HA_ERR_GENERIC;
    }
    return 0;
  }
  locking->lock= STRATA_LOCK_NONE;
  return 0;
}
