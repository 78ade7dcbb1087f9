/* Copyright (C) 2026 the Strata authors. SPDX-License-Identifier: GPL-2.0-only */

/* The handler apart from rows: capabilities, life cycle, definition, statements, statistics. */

#include "ha_strata.h"
#include "counted.h"
#include "errors.h"
#include "foreign.h"
#include "sql_alter.h"
#include <algorithm>

using strata::Definition;
using strata::handler_error;

namespace strata {
ha_create_table_option table_options[]= {
    HA_TOPTION_ENUM("COMPRESSION", compression, "default,none,lz4,zstd", 0),
    HA_TOPTION_ENUM("ENCRYPTED", encrypted, "DEFAULT,YES,NO", 0),
    HA_TOPTION_NUMBER("ENCRYPTION_KEY_ID", encryption_key, 1, 1, UINT_MAX32, 1),
    HA_TOPTION_STRING("TTL", ttl), HA_TOPTION_END};
}

namespace {

/* Clauses of CREATE TABLE that the server leaves to the engine, and that would be forgotten silently. */
void warn_left_out(const HA_CREATE_INFO *create_info)
{
  if (create_info->data_file_name)
    strata::warn_option_ignored("DATA DIRECTORY");
  if (create_info->index_file_name)
    strata::warn_option_ignored("INDEX DIRECTORY");
}

/* Who refuses encryption names no key for it. */
void warn_of_key(const ha_table_option_struct *options)
{
  if (options && options->encrypted == 2 && options->encryption_key != 1)
    push_warning_printf(current_thd, Sql_condition::WARN_LEVEL_WARN, HA_WRONG_CREATE_OPTION,
                        "Strata: ENCRYPTED=NO implies ENCRYPTION_KEY_ID=1");
}

/* Does the server look up rows of other keys before it writes one? It has to find those just written. */
bool server_checks_keys(const TABLE *table)
{
  for (uint i= 0; i < table->s->keys; i++)
    if (table->key_info[i].algorithm == HA_KEY_ALG_LONG_HASH || table->key_info[i].without_overlaps)
      return true;
  return false;
}

/* Does the index hold but the beginning of a column? What it says of a row is not enough for the server then, not even to
   compare it with the end of a range. */
bool has_prefix_part(const TABLE_SHARE *share, uint index)
{
  const KEY &key= share->key_info[index];
  if (key.algorithm == HA_KEY_ALG_LONG_HASH)
    return false;
  for (uint p= 0; p < key.user_defined_key_parts; p++)
  {
    const KEY_PART_INFO &part= key.key_part[p];
    if (part.fieldnr && part.length != share->field[part.fieldnr - 1]->key_length())
      return true;
  }
  return false;
}

/* What the server may do with an index; `share` may be null, as in table_flags(). */
ulong flags_of(const TABLE_SHARE *share, uint index)
{
  ulong flags= HA_READ_NEXT | HA_READ_PREV | HA_READ_ORDER | HA_READ_RANGE;
  if (!share || !has_prefix_part(share, index))
  {
    flags|= HA_KEYREAD_ONLY | HA_DO_INDEX_COND_PUSHDOWN;
    if (!share || share->primary_key >= MAX_KEY || !has_prefix_part(share, share->primary_key))
      flags|= HA_DO_RANGE_FILTER_PUSHDOWN;
  }
  if (share && index == share->primary_key)
    flags|= HA_CLUSTERED_INDEX;
  return flags;
}

} // namespace

thread_local int32_t ha_strata::duplicate_index= -1;

/* ---- what the engine can do ---- */

/* Called before the share is complete, and without one: the same for all tables, but for the primary key. */
handler::Table_flags ha_strata::table_flags() const
{
  Table_flags flags= HA_BINLOG_ROW_CAPABLE | HA_REC_NOT_IN_SEQ | HA_NULL_IN_KEY | HA_CAN_INDEX_BLOBS |
                     HA_AUTO_PART_KEY | HA_PRIMARY_KEY_IN_READ_INDEX | HA_TABLE_SCAN_ON_INDEX |
                     HA_PARTIAL_COLUMN_READ | HA_REQUIRES_KEY_COLUMNS_FOR_DELETE | HA_CAN_VIRTUAL_COLUMNS |
                     HA_CAN_SQL_HANDLER | HA_CAN_GEOMETRY | HA_CAN_TABLES_WITHOUT_ROLLBACK | HA_CAN_SKIP_LOCKED |
                     HA_CONCURRENT_OPTIMIZE | HA_CRASH_SAFE | HA_CAN_ONLINE_BACKUPS;
  if (table_share && table_share->primary_key < MAX_KEY)
    flags|= HA_PRIMARY_KEY_REQUIRED_FOR_POSITION;
  /* A statement in the binary log reads the same on a replica only if what it has read was locked. The server asks anew
     for each statement. */
  if (const THD *thd= ha_thd())
    if (strata::isolation_of(const_cast<THD *>(thd)) >= STRATA_REPEATABLE_READ &&
        !strata::read_timestamp_is_set(const_cast<THD *>(thd))) /* a replica reads the present */
      flags|= HA_BINLOG_STMT_CAPABLE;
  return flags;
}

/* Also called while the share is made: of a part, its field's number and its length are known then. */
ulong ha_strata::index_flags(uint index, uint, bool) const
{
  return index < traits_.size() ? traits_[index].flags : flags_of(table_share, index);
}

bool ha_strata::get_error_message(int error, String *out)
{
  switch (error)
  {
  case strata::ERROR_MESSAGE: strata::error_message(out); break;
  case HA_ERR_FK_DEPTH_EXCEEDED:
  case HA_ERR_NO_REFERENCED_ROW:
  case HA_ERR_ROW_IS_REFERENCED: strata::append_failed_reference(ha_thd(), out); break;
  }
  return false;
}

/* ---- life cycle ---- */

handler *ha_strata::clone(const char *, MEM_ROOT *mem_root)
{
  /* The name given is the table's; of a partition it would be the wrong one. */
  ha_strata *other= static_cast<ha_strata *>(handler::clone(name_.c_str(), mem_root));
  if (other)
  {
    other->requested_= requested_;
    other->is_requested_= is_requested_;
  }
  return other;
}

int ha_strata::attach()
{
  Definition definition;
  /* The options are in the catalog. Those in the share are not to be read: of a partitioned table they are a partition's, of
     whichever TABLE, and may be freed with that. */
  int error= definition.describe(table, table->s->tmp_table != NO_TMP_TABLE, nullptr);
  if (error)
    return error;
  int result= strata_table_open(strata::store, name_.c_str(), definition.get(), &table_);
  if (result == STRATA_OK)
    result= strata_cursor_new(table_, &cursor_);
  if (result == STRATA_OK)
    related_= strata_table_related(table_);
  if (result != STRATA_OK)
  {
    if (result != STRATA_NO_TABLE)
      strata::log_error("opening " + name_);
    release();
    return handler_error(result, nullptr);
  }
  return 0;
}

void ha_strata::release()
{
  if (cursor_)
  {
    if (bulk_)
      end_bulk(true);
    strata_cursor_free(cursor_);
  }
  if (table_)
    strata_table_close(table_);
  cursor_= nullptr;
  table_= nullptr;
  related_= nullptr;
  scan_index_= NO_SCAN;
  condition_= columns_known_= all_columns_= bounded_= false;
}

void ha_strata::describe_indexes()
{
  indexed_virtual_.clear();
  traits_.assign(table->s->keys, IndexTraits());
  auto add_prefixed= [](const KEY &key, std::vector<uint> *columns) {
    for (uint p= 0; p < key.user_defined_key_parts; p++)
      if (key.key_part[p].key_part_flag & HA_PART_KEY_SEG)
        columns->push_back(key.key_part[p].fieldnr - 1);
  };
  for (uint i= 0; i < table->s->keys; i++)
  {
    const KEY &key= table->key_info[i];
    add_prefixed(key, &traits_[i].prefixed);
    if (table->s->primary_key < MAX_KEY && i != table->s->primary_key)
      add_prefixed(table->key_info[table->s->primary_key], &traits_[i].prefixed);
    for (uint p= 0; p < key.user_defined_key_parts; p++)
    {
      Field *field= table->field[key.key_part[p].fieldnr - 1];
      if (field->stored_in_db())
        continue;
      if (std::find(indexed_virtual_.begin(), indexed_virtual_.end(), field) == indexed_virtual_.end())
        indexed_virtual_.push_back(field);
      traits_[i].has_virtual= true;
    }
    traits_[i].flags= flags_of(table->s, i);
    traits_[i].lookup_needs_rows= key.without_overlaps && !traits_[i].prefixed.empty();
  }
}

int ha_strata::open(const char *name, int, uint)
{
  name_= name;
  if (int error= attach())
    return error;
  ref_length= strata_ref_length(table_);

  describe_indexes();
  return info(HA_STATUS_NO_LOCK | HA_STATUS_VARIABLE | HA_STATUS_CONST | HA_STATUS_OPEN);
}

/* May run on another thread than the user's: no transaction, no THD. */
int ha_strata::close()
{
  release();
  return 0;
}

/* ---- definition ---- */

int ha_strata::create(const char *name, TABLE *form, HA_CREATE_INFO *create_info)
{
  warn_left_out(create_info);
  warn_of_key(form->s->option_struct);
  if (int error= strata::wait_for_earlier_commits(ha_thd()))
    return error;
  if (strata::rows_expire(form->s))
  {
    /* Of a row with versions the server makes another one when it goes, and in an index of vectors it takes out what refers to it. */
    if (form->versioned())
      return strata::unsupported_option("TTL of a table with system versions");
    if (strata::has_vector_index(form->s))
      return strata::unsupported_option("TTL of a table with a VECTOR index");
  }
  strata::ForeignKeys keys;
  if (int error= keys.collect(ha_thd(), name, form->s, create_info))
    return error;
  Definition definition;
  if (int error= definition.describe(form, create_info->tmp_table(), form->s->option_struct))
    return error;
  int result= strata_table_create(strata::store, name, definition.get(), create_info->auto_increment_value, keys.get(),
                                  keys.count(), strata::Ddl(ha_thd()).get());
  StrataTable *made= nullptr;
  if (result == STRATA_OK && strata::has_vector_index(form->s))
    result= strata_table_open(strata::store, name, definition.get(), &made);
  if (made)
  {
    ref_length= strata_ref_length(made); /* otherwise known once the table is open */
    strata_table_close(made);
  }
  /* Of what was left over without a definition the server would say that it cannot be created. */
  if (result == STRATA_TABLE_EXISTS)
    my_error(ER_TABLE_EXISTS_ERROR, MYF(0), form->s->table_name.str);
  int error= keys.tell_failure(ha_thd(), result, handler_error(result, ha_thd()));
  if (error == strata::ERROR_MESSAGE)
    print_error(error, MYF(0)); /* the server would show the number only */
  return error;
}

int ha_strata::delete_table(const char *name)
{
  if (int error= strata::wait_for_earlier_commits(current_thd))
    return error;
  if (int error= strata::lock_parent(current_thd, name))
    return error;
  return handler_error(strata_table_drop(strata::store, name, strata::drops_whole_tables(current_thd),
                                         strata::Ddl(current_thd).get()),
                       nullptr);
}

int ha_strata::rename_table(const char *from, const char *to)
{
  if (int error= strata::wait_for_earlier_commits(current_thd))
    return error;
  if (int error= strata::lock_parent(current_thd, from))
    return error;
  return handler_error(strata_table_rename(strata::store, from, to, strata::Ddl(current_thd).get()), nullptr);
}

int ha_strata::truncate()
{
  if (int error= strata::wait_for_earlier_commits(thd()))
    return error;
  if (int error= strata::lock_parent(thd(), name_.c_str()))
    return error;
  int result= strata_table_truncate(strata::store, name_.c_str(), strata::Ddl(thd()).get());
  if (result != STRATA_OK)
    return handler_error(result, thd());
  /* The server closes base tables now, but goes on with temporary ones. */
  release();
  if (int error= attach())
    return error;
  return begin(thd(), request_);
}

void ha_strata::update_create_info(HA_CREATE_INFO *create_info)
{
  if (!(create_info->used_fields & HA_CREATE_USED_AUTO))
  {
    info(HA_STATUS_AUTO);
    create_info->auto_increment_value= stats.auto_increment_value;
  }
}

/* Asked by EXCHANGE PARTITION: may the rows of this table stand in the other? The server has compared columns and, by name,
   indexes; it does not see what the order of indexes makes of them. The partitioned table is the statement's first. */
bool ha_strata::check_if_incompatible_data(HA_CREATE_INFO *, uint table_changes)
{
  if (table_changes != IS_EQUAL_YES)
    return COMPATIBLE_DATA_NO;
  const TABLE_LIST *first= thd()->lex->query_tables;
  if (!first || !first->table || first->table == table)
    return COMPATIBLE_DATA_YES;
  Definition definition;
  if (definition.describe(first->table, false, nullptr))
    return COMPATIBLE_DATA_NO;
  return strata_table_fits(strata::store, table_, definition.get()) == STRATA_OK ? COMPATIBLE_DATA_YES
                                                                                  : COMPATIBLE_DATA_NO;
}

/* ---- statements ---- */

ha_strata::Request ha_strata::request_for(thr_lock_type type)
{
  Request request;
  if (type == TL_READ_WITH_SHARED_LOCKS || type == TL_READ_SKIP_LOCKED)
    request.request= STRATA_READ_SHARED;
  else if (type >= TL_FIRST_WRITE)
    request.request= STRATA_WRITE;
  if (type == TL_READ_SKIP_LOCKED || type == TL_WRITE_SKIP_LOCKED)
    request.wait= STRATA_SKIP_LOCKED;
  return request;
}

/* Other connections call this too, for TABLEs in use: it only takes a note. */
THR_LOCK_DATA **ha_strata::store_lock(THD *, THR_LOCK_DATA **to, thr_lock_type type)
{
  if (type != TL_IGNORE)
  {
    requested_= request_for(type);
    is_requested_= true;
  }
  return to;
}

int ha_strata::begin(THD *thd, Request request)
{
  StrataSession *session;
  bool no_wait;
  if (int error= strata::begin_statement(thd, &session, &no_wait))
    return error;
  request_= request;
  Locking locking;
  locking.lock= strata_lock_of(request.request, strata::statement_kind(thd), strata::isolation_of(thd),
                               strata::in_transaction(thd));
  locking.wait= request.wait;
  if (unlikely(strata_reads_past(session)))
    if (int error= begin_past(thd, session, request, &locking))
      return error;
  if (no_wait && locking.wait == STRATA_WAIT)
    locking.wait= STRATA_NOWAIT;
  locking_= locking;
  strata_cursor_mode(cursor_, session, locking.lock, locking.wait);
  return 0;
}

int ha_strata::external_lock(THD *thd, int type)
{
  if (type == F_UNLCK)
  {
    is_requested_= false;
    if (fills_)
      strata_cursor_fills(cursor_, fills_= false);
    strata_cursor_mode(cursor_, nullptr, STRATA_LOCK_NONE, STRATA_WAIT); /* lets go of memory and files */
    return 0;
  }
  /* Copied to another engine, the table is not renamed, which would be refused. */
  if (thd_sql_command(thd) == SQLCOM_ALTER_TABLE || strata::locks_whole_tables(thd))
    if (int result= strata_table_await_prepared(table_, strata::lock_wait_us(thd)))
      return handler_error(result, thd);
  /* Some tables come here without store_lock(): targets of ALTER TABLE, clones. */
  Request request= is_requested_ ? requested_ : Request();
  if (type == F_WRLCK)
  {
    request.request= STRATA_WRITE;
    if (strata::cannot_log_statement(thd, table_flags()))
      return HA_ERR_LOGGING_IMPOSSIBLE;
    /* What these write to is a copy, a new partition, or a new table; but for tables that functions and triggers use. */
    int command= thd_sql_command(thd);
    const TABLE_LIST *place= table->pos_in_table_list;
    bool of_routine= place && place->prelocking_placeholder != TABLE_LIST::PRELOCK_NONE;
    if ((command == SQLCOM_ALTER_TABLE || command == SQLCOM_CREATE_TABLE) && !of_routine)
      strata_cursor_fills(cursor_, fills_= true);
  }
  int error= begin(thd, request);
  if (!error && type == F_WRLCK && thd->rgi_slave && strata::holds_positions(table_share))
    strata::writes_positions(thd);
  return error;
}

/* Of a table that LOCK TABLES holds, or the statement that calls a function: it may have been filled by CREATE OR REPLACE ... SELECT
   or ALTER TABLE in an earlier statement, and others see it since. */
int ha_strata::start_stmt(THD *thd, thr_lock_type type)
{
  if (fills_)
    strata_cursor_fills(cursor_, fills_= false);
  return begin(thd, request_for(type));
}

int ha_strata::reset()
{
  cancel_pushed_idx_cond();
  cancel_pushed_rowid_filter();
  mrr_.dsmrr_close();
  /* Until here the server may use the BLOBs of the row read last. */
  if (cursor_ && table->s->blob_fields)
    strata_cursor_forget_values(cursor_);
  /* A HANDLER table's scan goes on in later statements. */
  if (!cursor_ || inited != NONE || bulk_)
    return 0;
  if (scan_index_ != NO_SCAN)
  {
    strata_scan_end(cursor_);
    scan_index_= NO_SCAN;
  }
  /* The session stays until external_lock(F_UNLCK): reading its own statistics, the server resets temporary tables that a
     statement has just locked. */
  return 0;
}

int ha_strata::end_bulk(bool abort)
{
  bulk_= false;
  duplicate_index= -1;
  return handler_error(strata_bulk_end(cursor_, abort, &duplicate_index), abort ? nullptr : thd());
}

int ha_strata::extra(ha_extra_function operation)
{
  switch (operation)
  {
  case STRATA_EXTRA_BEGIN_COPY:
  {
    if (server_checks_keys(table) || (is_related() && strata_table_relation(table_, STRATA_IS_CHECKED)))
      return 0;
    int result= strata_bulk_begin(cursor_);
    bulk_= result == STRATA_OK;
    return handler_error(result, thd());
  }
  case STRATA_EXTRA_END_COPY: return bulk_ ? end_bulk(false) : 0; /* INSERT ... SELECT ends what it has not begun */
  case STRATA_EXTRA_ABORT_COPY: return bulk_ ? end_bulk(true) : 0;
  default: return 0;
  }
}

/* Rows that are to be changed are read with their indexed virtual columns: the old index entries are found by them. */
void ha_strata::column_bitmaps_signal()
{
  if (locking_.lock != STRATA_LOCK_EXCLUSIVE || table->current_lock != F_WRLCK)
    return;
  for (Field *field : indexed_virtual_)
    table->mark_virtual_column_with_deps(field);
}

/* ---- statistics ---- */

void ha_strata::fill_rec_per_key()
{
  double estimates[2 * MAX_REF_PARTS];
  for (uint i= 0; i < table->s->keys; i++)
  {
    KEY &key= table->key_info[i];
    size_t count= 0;
    if (strata_rec_per_key(table_, i, estimates, array_elements(estimates), &count) != STRATA_OK)
      count= 0;
    for (uint p= 0; p < key.ext_key_parts; p++)
    {
      double rows= p < count ? estimates[p] : p ? (double) key.rec_per_key[p - 1] : 0;
      key.rec_per_key[p]= p >= count && !p ? 0 : MY_MAX(1UL, (ulong) (rows + 0.5));
    }
  }
}

int ha_strata::info(uint what)
{
  if (what & HA_STATUS_ERRKEY)
    errkey= duplicate_index < 0 ? MAX_KEY : (uint) duplicate_index;
  if (what & HA_STATUS_AUTO)
    stats.auto_increment_value= strata_autoinc_next(table_);
  if (what & (HA_STATUS_VARIABLE | HA_STATUS_CONST))
  {
    StrataStats now= {};
    int result= strata_table_stats(table_, &now);
    if (result != STRATA_OK)
      return handler_error(result, thd());
    if (what & HA_STATUS_VARIABLE)
    {
      stats.records= now.rows;
      /* To the optimizer none would mean a table that is known to be empty. */
      if (!stats.records && !(what & (HA_STATUS_TIME | HA_STATUS_OPEN)))
        stats.records= 1;
      stats.deleted= 0;
      stats.data_file_length= now.data_bytes;
      stats.index_file_length= now.index_bytes;
      stats.delete_length= now.deleted_bytes;
      stats.mean_rec_length= now.mean_row_bytes;
      stats.check_time= 0;
      stats.update_time= (time_t) now.update_time;
    }
    if (what & HA_STATUS_CONST)
    {
      stats.create_time= (time_t) now.create_time;
      stats.block_size= 16384;
      stats.mrr_length_per_rec= ref_length + sizeof(range_id_t);
    }
    /* A table that has grown since it was opened is joined by what it is now. */
    if ((what & HA_STATUS_CONST) || now.sample_is_old)
      fill_rec_per_key();
  }
  return 0;
}

ha_rows ha_strata::records_in_range(uint index, const key_range *min, const key_range *max, page_range *)
{
  strata::Counted counted(handler_stats);
  uint32_t flags= 0;
  if (min && min->flag != HA_READ_AFTER_KEY)
    flags|= 1;
  if (max && max->flag != HA_READ_BEFORE_KEY)
    flags|= 2;
  uint64_t rows= 0;
  if (strata_records_in_range(cursor_, index, min ? min->key : nullptr, min ? min->length : 0, max ? max->key : nullptr,
                              max ? max->length : 0, flags, &rows) != STRATA_OK)
    return HA_POS_ERROR;
  /* To the optimizer none would be certain: it would not read at all, and no snapshot would be taken. */
  return rows ? rows : 1;
}

#if STRATA_COSTS_IN_READS
double ha_strata::read_time(uint index, uint ranges, ha_rows rows)
{
  if (!table->file->is_clustering_key(index))
    return handler::read_time(index, ranges, rows);
  /* Rows of the clustered key lie side by side: a range costs its share of a scan. */
  if (rows <= 2)
    return (double) rows;
  double scan= scan_time();
  return stats.records > rows ? ranges + scan * (double) rows / (double) stats.records : scan;
}
#endif
