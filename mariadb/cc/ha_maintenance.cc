/* Copyright (C) 2026 the Strata authors. SPDX-License-Identifier: GPL-2.0-only */

/* CHECK, OPTIMIZE and ANALYZE TABLE. */

#include "ha_strata.h"
#include "errors.h"
#include "instruments.h"
#include "my_check_opt.h"
#include <service_versions.h>
#include <mysql/service_print_check_msg.h>

/* The server's archive of services knows this one under a wrong name. The server finds it by name when it loads the
   plugin, checks the version it holds, and puts its table there. */
print_check_msg_service_st *print_check_msg_service=
    reinterpret_cast<print_check_msg_service_st *>(VERSION_print_check_msg);

using strata::handler_error;

int ha_strata::check(THD *thd, HA_CHECK_OPT *options)
{
  struct Report
  {
    THD *thd;
    const TABLE_SHARE *share;
    ha_strata *handler;
    strata::Telling *telling;
    void say(const char *kind, const std::string &text) const
    {
      print_check_msg_context(thd)(thd, share->db.str, share->table_name.str, "check", kind, text.c_str(), true);
    }
  } report= {thd, table->s, this, nullptr};
  strata::Telling telling(thd);
  report.telling= &telling;
  auto emit= [](void *to, const char *line, size_t length) {
    static_cast<const Report *>(to)->say("error", std::string(line, length));
  };
  auto warn= [](void *to, const char *line, size_t length) {
    static_cast<const Report *>(to)->say("warning", std::string(line, length));
  };
  auto compute= [](void *to, uint8_t *record) {
    return static_cast<const Report *>(to)->handler->compute_record(record, false);
  };
  auto tell= [](void *to, const char *step, uint64_t done, uint64_t of) {
    static_cast<const Report *>(to)->telling->tell(step, done, of);
  };
  int result= strata_table_check(cursor_, (options->flags & T_QUICK) != 0, indexed_virtual_.empty() ? nullptr : +compute, emit,
                                 warn, tell, &report);
  switch (result)
  {
  case STRATA_OK: return HA_ADMIN_OK;
  case STRATA_CORRUPTION: return HA_ADMIN_CORRUPT;
  default: print_error(handler_error(result, thd), MYF(0)); return HA_ADMIN_FAILED;
  }
}

int ha_strata::optimize(THD *thd, HA_CHECK_OPT *)
{
  strata::Telling telling(thd);
  auto tell= [](void *to, uint32_t index, uint32_t indexes, uint64_t done, uint64_t of) {
    strata::Telling *telling= static_cast<strata::Telling *>(to);
    telling->enter(index, indexes);
    telling->tell("merging", done, of);
  };
  int result= strata_table_optimize(cursor_, tell, &telling);
  if (result == STRATA_OK)
    return HA_ADMIN_OK;
  print_error(handler_error(result, thd), MYF(0));
  return HA_ADMIN_FAILED;
}

int ha_strata::analyze(THD *thd, HA_CHECK_OPT *)
{
  int result= strata_table_analyze(cursor_);
  if (result != STRATA_OK)
  {
    print_error(handler_error(result, thd), MYF(0));
    return HA_ADMIN_FAILED;
  }
  info(HA_STATUS_NO_LOCK | HA_STATUS_VARIABLE | HA_STATUS_CONST);
  return HA_ADMIN_OK;
}
