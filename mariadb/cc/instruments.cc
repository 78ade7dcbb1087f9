/* Copyright (C) 2026 the Strata authors. SPDX-License-Identifier: GPL-2.0-only */

#include "instruments.h"
#include <mysql/psi/mysql_stage.h>
#include <mysql/psi/mysql_thread.h>
#include <string.h>

namespace strata {

namespace {

/* As the row layer names its steps (row/src/progress.rs); merging is what OPTIMIZE does. The server has room for 160 stages by default (performance_schema_max_stage_classes)
   and some 150 itself: one that does not fit is shown in SHOW PROCESSLIST alone. */
PSI_stage_info steps[]= {{0, "reading rows", PSI_FLAG_STAGE_PROGRESS},
                         {0, "sorting", PSI_FLAG_STAGE_PROGRESS},
                         {0, "following changes", PSI_FLAG_STAGE_PROGRESS},
                         {0, "ending", PSI_FLAG_STAGE_PROGRESS},
                         {0, "merging", PSI_FLAG_STAGE_PROGRESS},
                         {0, "checking blocks", PSI_FLAG_STAGE_PROGRESS},
                         {0, "checking rows", PSI_FLAG_STAGE_PROGRESS}};

/* What the calling thread may wait for, by the numbers of StrataCallbacks::blocking_begins. Waits for the log are short, and there is one
   for each commit: they are no stage. */
struct Wait
{
  const char *instrument;
  int for_pool; /* to a pool of threads */
  PSI_stage_info stage;
  bool is_stage;
  PSI_cond_key key;
  PSI_cond *cond;
};
Wait waits[]= {{"row_lock", THD_WAIT_ROW_LOCK, {0, "Waiting for row lock", 0}, true, 0, nullptr},
               {"log", THD_WAIT_SYNC, {0, nullptr, 0}, false, 0, nullptr},
               {"background", THD_WAIT_SLEEP, {0, "Waiting for flush or compaction", 0}, true, 0, nullptr}};

struct Thread
{
  const char *name, *instrument;
  PSI_thread_key key;
};
Thread threads[]= {{"strata-flush", "flush", 0}, {"strata-clean", "clean", 0}, {"strata-compact", "compact", 0}};

/* The wait that the thread is in. One within another is a part of it. */
struct Waiting
{
  uint depth= 0;
  bool is_stage= false;
  PSI_stage_info former;
  PSI_cond_locker *locker= nullptr;
  PSI_cond_locker_state state;
};
thread_local Waiting waiting;

void wait_begins(int what)
{
  Wait &wait= waits[what];
  thd_wait_begin(nullptr, wait.for_pool);
  Waiting &now= waiting;
  if (now.depth++)
    return;
  THD *thd= wait.is_stage ? current_thd : nullptr;
  if ((now.is_stage= thd != nullptr))
  {
    thd->backup_stage(&now.former);
    THD_STAGE_INFO(thd, wait.stage);
  }
#ifdef HAVE_PSI_COND_INTERFACE
  now.locker= wait.cond ? PSI_COND_CALL(start_cond_wait)(&now.state, wait.cond, nullptr, PSI_COND_WAIT, __FILE__, __LINE__) : nullptr;
#endif
}

void wait_ends()
{
  Waiting &now= waiting;
  thd_wait_end(nullptr);
  if (--now.depth)
    return;
#ifdef HAVE_PSI_COND_INTERFACE
  if (now.locker)
    PSI_COND_CALL(end_cond_wait)(now.locker, 0);
#endif
  now.locker= nullptr;
  if (THD *thd= now.is_stage ? current_thd : nullptr)
    THD_STAGE_INFO(thd, now.former);
}

/* Known to mysys as well: the store's threads write to the error log, and ask the encryption plugin for keys. */
void thread_begins(const char *name)
{
  if (my_thread_init())
    return;
#ifdef HAVE_PSI_THREAD_INTERFACE
  for (Thread &thread : threads)
    if (!strcmp(thread.name, name))
    {
      PSI_thread *psi= PSI_THREAD_CALL(new_thread)(thread.key, nullptr, 0);
      PSI_THREAD_CALL(set_thread_os_id)(psi);
      PSI_THREAD_CALL(set_thread)(psi);
    }
#endif
}

void thread_ends()
{
  if (_my_thread_var())
    my_thread_end(); /* with the instrument */
}

} // namespace

void register_instruments()
{
  static bool is_done= false;
  if (is_done)
    return;
  is_done= true;
#ifdef HAVE_PSI_STAGE_INTERFACE
  PSI_stage_info *stages[array_elements(steps) + array_elements(waits)];
  int count= 0;
  for (Wait &wait : waits)
    if (wait.is_stage)
      stages[count++]= &wait.stage;
  for (PSI_stage_info &step : steps)
    stages[count++]= &step;
  mysql_stage_register("strata", stages, count);
#endif
#ifdef HAVE_PSI_COND_INTERFACE
  for (Wait &wait : waits)
  {
    PSI_cond_info info= {&wait.key, wait.instrument, PSI_FLAG_GLOBAL};
    PSI_COND_CALL(register_cond)("strata", &info, 1);
    wait.cond= PSI_COND_CALL(init_cond)(wait.key, &wait);
  }
#endif
#ifdef HAVE_PSI_THREAD_INTERFACE
  for (Thread &thread : threads)
  {
    PSI_thread_info info= {&thread.key, thread.instrument, 0};
    PSI_THREAD_CALL(register_thread)("strata", &info, 1);
  }
#endif
}

void install_instrument_callbacks(StrataCallbacks *callbacks)
{
  callbacks->blocking_begins= wait_begins;
  callbacks->blocking_ends= wait_ends;
  callbacks->thread_begins= thread_begins;
  callbacks->thread_ends= thread_ends;
}

Telling::Telling(THD *thd) : thd_(thd) { thd->backup_stage(&former_); }

Telling::~Telling()
{
  if (is_begun_)
    thd_progress_end(thd_);
  if (stage_)
    THD_STAGE_INFO(thd_, former_);
}

/* Once: until its end the server takes no other number of parts. */
void Telling::begin()
{
  if (!is_begun_)
    thd_progress_init(thd_, parts_);
  is_begun_= true;
}

void Telling::enter(uint32_t part, uint32_t parts)
{
  parts_= parts;
  begin();
  for (; part_ < part; part_++)
    thd_progress_next_stage(thd_);
}

void Telling::tell(const char *step, uint64_t done, uint64_t of)
{
  begin();
  if (!stage_ || strcmp(stage_->m_name, step))
    for (const PSI_stage_info &known : steps)
      if (!strcmp(known.m_name, step))
      {
        stage_= &known;
        THD_STAGE_INFO(thd_, known);
      }
#ifdef HAVE_PSI_STAGE_INTERFACE
  mysql_stage_set_work_estimated(thd_->m_stage_progress_psi, of);
  mysql_stage_set_work_completed(thd_->m_stage_progress_psi, done);
#endif
  thd_progress_report(thd_, done, of);
}

} // namespace strata
