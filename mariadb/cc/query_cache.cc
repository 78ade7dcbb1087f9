/* Copyright (C) 2026 the Strata authors. SPDX-License-Identifier: GPL-2.0-only */

/* The server's query cache. A result is kept with the number of the newest change of each of its tables, and is handed out as long as
   that is the newest: the server's own invalidation comes at the end of a statement, not of its transaction. A transaction gets and
   gives results only while it has written nothing and its snapshot has all changes. */

#include "errors.h"
#include "ha_strata.h"
#include <string>

namespace {

/* The table's name as the engine was given it at first: ./database/table. The query cache makes the path anew, and not in that form; of a
   partition with the zero at its end. */
std::string name_of(const char *path, uint length)
{
  while (length && !path[length - 1])
    length--;
  const char *end= path + length, *from= end;
  for (int parts= 0; from > path; from--)
    if (from[-1] == FN_LIBCHAR && ++parts == 2)
      break;
  return "./" + std::string(from, end - from);
}

/* The number that counts for this statement; false if it has to read for itself. */
bool current_version(THD *thd, const char *path, uint length, ulonglong *version)
{
  using namespace strata;
  StrataSession *session= nullptr;
  if (read_timestamp_is_set(thd) || strata_reads_past(session_of(thd)))
    return false;
  bool one_snapshot= false;
  if (in_transaction(thd))
  {
    uint32_t isolation= isolation_of(thd);
    bool no_wait;
    /* Reads of SERIALIZABLE lock. */
    if (isolation >= STRATA_SERIALIZABLE || begin_statement(thd, &session, &no_wait))
      return false;
    one_snapshot= isolation >= STRATA_REPEATABLE_READ;
  }
  uint64_t found;
  std::string name= name_of(path, length);
  if (strata_result_version(store, name.data(), name.size(), session, one_snapshot, &found) != STRATA_OK)
    return false;
  *version= found;
  return true;
}

/* May a result that was kept with this number be handed out? If it is out of date for everybody, the server is told by another
   number to forget it. */
my_bool may_be_handed_out(THD *thd, const char *path, uint length, ulonglong *kept)
{
  ulonglong version;
  if (!current_version(thd, path, length, &version))
    return false;
  bool same= *kept == version;
  *kept= version;
  return same;
}

} // namespace

my_bool ha_strata::register_query_cache_table(THD *thd, const char *path, uint length, qc_engine_callback *callback,
                                              ulonglong *version)
{
  *callback= may_be_handed_out;
  return current_version(thd, path, length, version);
}
