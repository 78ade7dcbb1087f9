/* Copyright (C) 2026 the Strata authors. SPDX-License-Identifier: GPL-2.0-only */

/* The handler's statistics: ANALYZE FORMAT=JSON and, with log_slow_verbosity=engine, the slow log. */
#ifndef STRATA_COUNTED_H
#define STRATA_COUNTED_H

#include "glue.h"

namespace strata {

/* While it lives, what the thread does in the engine counts for a statement, if the server wants to know (else null). */
class Counted
{
public:
  explicit Counted(ha_handler_stats *stats) : stats_(stats)
  {
    if (unlikely(stats != nullptr))
      strata_counting_begin(&begun_);
  }
  ~Counted()
  {
    if (unlikely(stats_ != nullptr))
      add();
  }
  Counted(const Counted &)= delete;
  void operator=(const Counted &)= delete;

private:
  void add();

  ha_handler_stats *stats_;
  StrataCounts begun_;
};

} // namespace strata

#endif
