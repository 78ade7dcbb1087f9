/* Copyright (C) 2026 the Strata authors. SPDX-License-Identifier: GPL-2.0-only */

#include "counted.h"

namespace strata {

/* The server's names are made for pages that are changed in place and for undo logs. Here a page is a block of a table file; what is updated are
   rows and index entries; old rows are the versions that a scan has to step over. */
void Counted::add()
{
  StrataCounts done= {};
  strata_counting_end(&begun_, &done);
  stats_->pages_accessed+= done.blocks;
  stats_->pages_read_count+= done.blocks_read;
  stats_->pages_read_time+= (ulonglong) ((double) done.read_ns * timer_tracker_frequency() / 1e9);
  stats_->pages_updated+= done.entries_written;
  stats_->undo_records_read+= done.versions_passed;
}

} // namespace strata
