/* Copyright (C) 2026 the Strata authors. SPDX-License-Identifier: GPL-2.0-only */

/* The row layer's results as the server's error numbers. */
#ifndef STRATA_ERRORS_H
#define STRATA_ERRORS_H

#include "compat.h"
#include "strata.h"
#include <string>

namespace strata {

/* Numbers of our own, above the server's: their text is the row layer's message. */
enum OwnError { ERROR_MESSAGE= HA_ERR_LAST + 1, ERROR_LAST= ERROR_MESSAGE };

int error_of_failure(int result, THD *thd);

/* Maps a StrataResult. Marks the transaction of `thd` (may be null) where the server has to roll it back. */
inline int handler_error(int result, THD *thd) { return result == STRATA_OK ? 0 : error_of_failure(result, thd); }

/* As handler_error(), where the server calls without a handler and would tell the number only: the text is raised, as
   `server_error`. What the server raises then comes second. */
int told_error(int result, THD *thd, uint server_error);

/* For calls that end scans: nothing found is the end of the file. */
inline int scan_error(int result, THD *thd)
{
  return result == STRATA_NOT_FOUND ? HA_ERR_END_OF_FILE : handler_error(result, thd);
}

/* The text of the last error of this thread. */
bool error_message(String *out);

/* Says "does not support the create option" and returns the error for create(). */
int unsupported_option(const char *feature);

/* Warns that an option of CREATE TABLE has no effect. */
void warn_option_ignored(const char *option);

/* Writes the last error to the server's log. */
void log_error(const std::string &what);

} // namespace strata

#endif
