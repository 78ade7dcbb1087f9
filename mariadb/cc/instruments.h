/* Copyright (C) 2026 the Strata authors. SPDX-License-Identifier: GPL-2.0-only */

/* What the server shows of the engine's work: stages of statements, waits, threads, files and memory, in SHOW PROCESSLIST and in the tables
   of performance_schema. What has no instrument costs a look at a pointer. */
#ifndef STRATA_INSTRUMENTS_H
#define STRATA_INSTRUMENTS_H

#include "glue.h"

namespace strata {

/* Names the instruments to the server. Before the store is opened. */
void register_instruments();

/* StrataCallbacks: waits of the calling thread, the store's own threads, its files and memory. */
void install_instrument_callbacks(StrataCallbacks *callbacks);

/* A statement that tells how far it is, while this lives: State and Progress of SHOW PROCESSLIST, and work_completed and work_estimated of
   performance_schema.events_stages_current. */
class Telling
{
public:
  explicit Telling(THD *thd);
  ~Telling();
  Telling(const Telling &)= delete;
  void operator=(const Telling &)= delete;
  /* It is at this part of so many, from 0 on: the stage of SHOW PROCESSLIST. */
  void enter(uint32_t part, uint32_t parts);
  void tell(const char *step, uint64_t done, uint64_t of);

private:
  void begin();

  THD *thd_;
  bool is_begun_= false;
  PSI_stage_info former_;
  const PSI_stage_info *stage_= nullptr;
  uint32_t part_= 0, parts_= 1;
};

} // namespace strata

#endif
