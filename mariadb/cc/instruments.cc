/* Copyright (C) 2026 the Strata authors. SPDX-License-Identifier: GPL-2.0-only */

#include "instruments.h"
#include <mysql/psi/mysql_file.h>
#include <mysql/psi/mysql_memory.h>
#include <mysql/psi/mysql_stage.h>
#include <mysql/psi/mysql_thread.h>
#include <string.h>
#include <vector>

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
Thread threads[]= {{"strata-flush", "flush", 0}, {"strata-clean", "clean", 0}, {"strata-compact", "compact", 0},
                   {"strata-purge", "purge", 0}};

#ifdef HAVE_PSI_FILE_INTERFACE
/* By StrataFileKind. */
const char *const file_kinds[]= {"sst", "log", "manifest"};
PSI_file_key file_keys[array_elements(file_kinds)];

/* By StrataFileOperation. */
const PSI_file_operation file_operations[]= {PSI_FILE_STREAM_OPEN, PSI_FILE_STREAM_CLOSE, PSI_FILE_READ,  PSI_FILE_WRITE,  PSI_FILE_SYNC,
                                             PSI_FILE_CHSIZE,      PSI_FILE_FSTAT,        PSI_FILE_DELETE, PSI_FILE_RENAME};

/* The file operation that the thread is in; without a locker nobody counts it. */
struct Filing
{
  PSI_file_locker *locker;
  PSI_file_operation operation;
  PSI_file_locker_state state;
  char name[FN_REFLEN]; /* the server looks at it at the end, too */
};
thread_local Filing filing;

/* As mysql_file.h does it around its own calls. */
void file_begins(uint32_t operation, uint32_t kind, void *file, const char *name, size_t bytes)
{
  Filing &now= filing;
  now.operation= file_operations[operation];
  now.locker= nullptr;
  if (name)
  {
    strmake_buf(now.name, name);
    now.locker= PSI_FILE_CALL(get_thread_file_name_locker)(&now.state, file_keys[kind], now.operation, now.name, nullptr);
  }
  else if (PSI_file *open= static_cast<PSI_file *>(file))
    now.locker= PSI_FILE_CALL(get_thread_file_stream_locker)(&now.state, open, now.operation);
  if (!now.locker)
    return;
  switch (now.operation)
  {
  case PSI_FILE_STREAM_OPEN: PSI_FILE_CALL(start_file_open_wait)(now.locker, __FILE__, __LINE__); break;
  case PSI_FILE_STREAM_CLOSE:
  case PSI_FILE_DELETE: PSI_FILE_CALL(start_file_close_wait)(now.locker, __FILE__, __LINE__); break;
  default: PSI_FILE_CALL(start_file_wait)(now.locker, bytes, __FILE__, __LINE__);
  }
}

void *file_ends(int ok, size_t bytes, const char *from, const char *to)
{
  Filing &now= filing;
  if (!now.locker)
    return nullptr;
  switch (now.operation)
  {
  /* Any pointer but null says that there is a file now. */
  case PSI_FILE_STREAM_OPEN: return PSI_FILE_CALL(end_file_open_wait)(now.locker, ok ? &now : nullptr);
  case PSI_FILE_STREAM_CLOSE:
  case PSI_FILE_DELETE: PSI_FILE_CALL(end_file_close_wait)(now.locker, ok ? 0 : -1); break;
  case PSI_FILE_RENAME: PSI_FILE_CALL(end_file_rename_wait)(now.locker, from, to, ok ? 0 : -1); break;
  default: PSI_FILE_CALL(end_file_wait)(now.locker, bytes);
  }
  return nullptr;
}
#endif

#ifdef HAVE_PSI_MEMORY_INTERFACE
std::vector<PSI_memory_key> memory_keys;

/* An instrument that is off takes nothing in, and gives back what it has taken. */
uint64_t memory_is(uint32_t part, uint64_t counted, uint64_t bytes)
{
  PSI_memory_key key= memory_keys[part];
  PSI_thread *owner= nullptr;
  if (bytes > counted)
    return PSI_MEMORY_CALL(memory_alloc)(key, bytes - counted, &owner) == PSI_NOT_INSTRUMENTED ? counted : bytes;
  PSI_MEMORY_CALL(memory_free)(key, counted - bytes, nullptr);
  return bytes;
}
#endif

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
#ifdef HAVE_PSI_FILE_INTERFACE
  for (size_t kind= 0; kind < array_elements(file_kinds); kind++)
  {
    PSI_file_info info= {&file_keys[kind], file_kinds[kind], 0};
    PSI_FILE_CALL(register_file)("strata", &info, 1);
  }
#endif
#ifdef HAVE_PSI_MEMORY_INTERFACE
  std::vector<const char *> parts(strata_memory_parts(nullptr, 0));
  strata_memory_parts(parts.data(), parts.size());
  memory_keys.resize(parts.size());
  for (size_t part= 0; part < parts.size(); part++)
  {
    PSI_memory_info info= {&memory_keys[part], parts[part], PSI_FLAG_GLOBAL};
    PSI_MEMORY_CALL(register_memory)("strata", &info, 1);
  }
#endif
}

void install_instrument_callbacks(StrataCallbacks *callbacks)
{
  callbacks->blocking_begins= wait_begins;
  callbacks->blocking_ends= wait_ends;
  callbacks->thread_begins= thread_begins;
  callbacks->thread_ends= thread_ends;
  /* Without a performance schema there is no key, and the store is not asked to tell. */
#ifdef HAVE_PSI_FILE_INTERFACE
  if (file_keys[0])
  {
    callbacks->file_begins= file_begins;
    callbacks->file_ends= file_ends;
  }
#endif
#ifdef HAVE_PSI_MEMORY_INTERFACE
  if (memory_keys[0])
    callbacks->memory= memory_is;
#endif
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
