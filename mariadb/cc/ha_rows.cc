/* Copyright (C) 2026 the Strata authors. SPDX-License-Identifier: GPL-2.0-only */

/* The handler's reads and writes of rows. */

#include "ha_strata.h"
#include "counted.h"
#include "errors.h"
#include "rowid_filter.h"
#include <algorithm>

using strata::handler_error;
using strata::scan_error;

/* ---- what the cursor reads ---- */

/* The server may change read_set between two reads, without a word. Where virtual columns are computed here, what they
   are computed from need not be in it. */
void ha_strata::sync_columns()
{
  bool needs_all= scan_index_ >= 0 && !key_only_ &&
                  (computes_virtual() || (keyread_enabled() && traits_[scan_index_].lookup_needs_rows));
  if (locking_.lock == STRATA_LOCK_EXCLUSIVE || needs_all)
  {
    if (!all_columns_)
      strata_cursor_columns(cursor_, nullptr, 0);
    all_columns_= true;
    columns_known_= false;
    return;
  }
  static_assert(sizeof(my_bitmap_map) == sizeof(uint64_t), "read_set is handed on as it is");
  const MY_BITMAP *set= table->read_set;
  size_t words= (set->n_bits + 63) / 64;
  if (columns_known_ && columns_.size() == words && std::equal(columns_.begin(), columns_.end(), set->bitmap))
    return;
  columns_.assign(set->bitmap, set->bitmap + words);
  strata_cursor_columns(cursor_, columns_.data(), set->n_bits);
  columns_known_= true;
  all_columns_= false;
}

/* Called for each index entry, after the row layer has decoded it into record[0]. */
int ha_strata::check_entry(void *self)
{
  ha_strata *h= static_cast<ha_strata *>(self);
  check_result_t verdict= CHECK_POS;
  if (h->pushed_idx_cond)
    verdict= handler_index_cond_check(h);
  if (verdict == CHECK_POS && h->pushed_rowid_filter && handler_rowid_filter_is_active(h))
    verdict= handler_rowid_filter_check(h);
  switch (verdict)
  {
  case CHECK_NEG: return 0;
  case CHECK_POS: return 1;
  case CHECK_OUT_OF_RANGE: return 2;
  case CHECK_ABORTED_BY_USER: return 3;
  default: return 4;
  }
}

/* A rowid filter is asked together with the end of the range, and for the row's reference: an entry that holds but the
   beginnings of columns, or virtual ones, tells neither. The server checks the filter's condition on rows anyway. */
bool ha_strata::filters_entries() const
{
  return (uint) scan_index_ != table->s->primary_key && traits_[scan_index_].prefixed.empty() &&
         !traits_[scan_index_].has_virtual;
}

void ha_strata::sync_condition()
{
  bool wanted= scan_index_ >= 0 &&
               ((pushed_idx_cond && pushed_idx_cond_keyno == (uint) scan_index_) ||
                (pushed_rowid_filter && filters_entries()));
  if (wanted == condition_)
    return;
  condition_= wanted;
  strata_cursor_condition(cursor_, wanted ? check_entry : nullptr, wanted ? this : nullptr);
}

/* May the scan do without rows? keyread says that the index has all that is asked for; only index merge says so of prefixes
   of columns too, which it compares with the ends of its ranges. */
bool ha_strata::wants_key_only(int32_t index) const
{
  if (index < 0 || keyread >= MAX_KEY) /* index merge names the first of its indexes only */
    return false;
  if (traits_[index].lookup_needs_rows)
    return false;
  for (uint column : traits_[index].prefixed)
    if (bitmap_is_set(table->read_set, column))
      return false;
  return true;
}

/* Must a read of rows through the index compute its virtual columns? Mostly the server does it itself, after the read. Not
   with keyread on, nor in another record than the table's, nor where a second handler of the table reads for it: a
   partition, or a part of index merge. */
bool ha_strata::scan_computes_virtual()
{
  return traits_[scan_index_].has_virtual && (keyread_enabled() || table->file != this);
}

/* Computes the indexed virtual columns that are read, in the record that the fields point to. The server's function
   empties tmp_set, which may be the read_set in force. */
int ha_strata::compute_virtual()
{
  bool all= traits_[scan_index_].lookup_needs_rows;
  saved_columns_.assign(table->tmp_set.bitmap, table->tmp_set.bitmap + (table->tmp_set.n_bits + 63) / 64);
  int error= 0;
  for (size_t i= 0; i < indexed_virtual_.size() && !error; i++)
  {
    Field *field= indexed_virtual_[i];
    if (!all && !bitmap_is_set(table->read_set, field->field_index))
      continue;
    if (table->update_virtual_field(field, true))
      error= HA_ERR_GENERIC;
    std::copy(saved_columns_.begin(), saved_columns_.end(), table->tmp_set.bitmap);
  }
  return error;
}

int ha_strata::add_virtual(uchar *buf)
{
  if (key_only_ || scan_index_ < 0 || !scan_computes_virtual())
    return 0;
  return buf == table->record[0] ? compute_virtual() : compute_neighbour(buf);
}

/* Virtual columns of a row that the server compares with the one in record[0], or copies there later. A field owns the bytes of the last blob it
   has computed, and record[0] points to them: the neighbour's are kept elsewhere. */
int ha_strata::compute_neighbour(uchar *buf)
{
  neighbour_blobs_.resize(indexed_virtual_.size());
  auto swap_blobs= [this] {
    for (size_t i= 0; i < indexed_virtual_.size(); i++)
      if (indexed_virtual_[i]->flags & BLOB_FLAG)
        static_cast<Field_blob *>(indexed_virtual_[i])->swap(neighbour_blobs_[i], false);
  };
  table->move_fields(table->field, buf, table->record[0]);
  swap_blobs();
  int error= compute_virtual();
  swap_blobs();
  table->move_fields(table->field, table->record[0], buf);
  return error;
}

/* All of them, in a row that CHECK TABLE compares with its index entries, or that a cascade changes. Told or not, values that do not fit are made
   to fit where the statement is not to fail by them. */
int ha_strata::compute_record(uchar *record, bool tells)
{
  table->move_fields(table->field, record, table->record[0]);
  saved_columns_.assign(table->tmp_set.bitmap, table->tmp_set.bitmap + (table->tmp_set.n_bits + 63) / 64);
  int error= 0;
  for (size_t i= 0; i < indexed_virtual_.size() && !error; i++)
  {
    error= table->update_virtual_field(indexed_virtual_[i], !tells);
    std::copy(saved_columns_.begin(), saved_columns_.end(), table->tmp_set.bitmap);
  }
  table->move_fields(table->field, table->record[0], record);
  return error;
}

int ha_strata::begin_scan(int32_t index)
{
  set_bound(nullptr);
  scan_index_= index;
  key_only_= wants_key_only(index);
  sync_columns();
  sync_condition();
  int result= strata_scan_begin(cursor_, index, key_only_);
  if (result != STRATA_OK)
    scan_index_= NO_SCAN;
  return handler_error(result, thd());
}

void ha_strata::sync_scan()
{
  sync_columns();
  sync_condition();
}

void ha_strata::set_bound(const key_range *end)
{
  if (!end && !bounded_)
    return;
  bounded_= end != nullptr;
  if (end)
    strata_scan_bound(cursor_, end->key, end->length, end->flag != HA_READ_BEFORE_KEY);
  else
    strata_scan_bound(cursor_, nullptr, 0, 0);
}

int ha_strata::seek(uint32_t mode, const uchar *key, uint length, uchar *buf)
{
  strata::Counted counted(handler_stats);
  if (!in_range_)
    set_bound(nullptr);
  bool key_only= wants_key_only(scan_index_);
  if (key_only != key_only_)
  {
    /* keyread was switched after index_init() */
    key_only_= key_only;
    int result= strata_scan_begin(cursor_, scan_index_, key_only_);
    if (result != STRATA_OK)
      return handler_error(result, thd());
  }
  sync_scan();
  return finish_read(handler_error(strata_seek(cursor_, mode, key, length, buf), thd()), buf);
}

/* ---- table scans and positions ---- */

int ha_strata::rnd_init(bool scan)
{
  if (!scan)
    return 0;
  at_start_= true;
  return begin_scan(TABLE_SCAN);
}

int ha_strata::rnd_end()
{
  if (scan_index_ != NO_SCAN)
    strata_scan_end(cursor_);
  scan_index_= NO_SCAN;
  return 0;
}

int ha_strata::rnd_next(uchar *buf)
{
  if (at_start_)
  {
    at_start_= false;
    int error= seek(STRATA_SEEK_FIRST, nullptr, 0, buf);
    return error == HA_ERR_KEY_NOT_FOUND ? HA_ERR_END_OF_FILE : error;
  }
  strata::Counted counted(handler_stats);
  sync_columns();
  return scan_error(strata_next(cursor_, buf), thd());
}

/* What has no reference gets one that no read accepts: an error then, not a row that is passed over. */
void ha_strata::position(const uchar *record)
{
  if (strata_position(cursor_, record, ref) != STRATA_OK)
    memset(ref, 0xff, ref_length);
}

int ha_strata::rnd_pos(uchar *buf, uchar *pos)
{
  strata::Counted counted(handler_stats);
  sync_columns();
  return handler_error(strata_read_position(cursor_, pos, buf), thd());
}

int ha_strata::cmp_ref(const uchar *a, const uchar *b) { return strata_ref_compare(table_, a, b); }

/* ---- index scans ---- */

int ha_strata::index_init(uint index, bool) { return begin_scan((int32_t) index); }

int ha_strata::index_end()
{
  if (scan_index_ != NO_SCAN)
    strata_scan_end(cursor_);
  scan_index_= NO_SCAN;
  return 0;
}

int ha_strata::index_read_map(uchar *buf, const uchar *key, key_part_map parts, ha_rkey_function mode)
{
  if (!key)
    return index_first(buf);
  uint32_t how;
  switch (mode)
  {
  case HA_READ_KEY_EXACT:
  case HA_READ_PREFIX: how= STRATA_SEEK_EXACT; break;
  case HA_READ_KEY_OR_NEXT: how= STRATA_SEEK_GE; break;
  case HA_READ_AFTER_KEY: how= STRATA_SEEK_GT; break;
  case HA_READ_KEY_OR_PREV: how= STRATA_SEEK_LE; break;
  case HA_READ_BEFORE_KEY: how= STRATA_SEEK_LT; break;
  case HA_READ_PREFIX_LAST: how= STRATA_SEEK_LAST_IN_PREFIX; break;
  case HA_READ_PREFIX_LAST_OR_PREV: how= STRATA_SEEK_LAST_IN_PREFIX_OR_PREV; break;
  default: return HA_ERR_UNSUPPORTED;
  }
  int error= seek(how, key, calculate_key_len(table, (uint) scan_index_, key, parts), buf);
  return error == HA_ERR_END_OF_FILE ? HA_ERR_KEY_NOT_FOUND : error;
}

int ha_strata::index_read_last_map(uchar *buf, const uchar *key, key_part_map parts)
{
  return index_read_map(buf, key, parts, HA_READ_PREFIX_LAST);
}

int ha_strata::index_next(uchar *buf)
{
  strata::Counted counted(handler_stats);
  sync_scan();
  return finish_read(scan_error(strata_next(cursor_, buf), thd()), buf);
}

int ha_strata::index_prev(uchar *buf)
{
  strata::Counted counted(handler_stats);
  sync_scan();
  return finish_read(scan_error(strata_prev(cursor_, buf), thd()), buf);
}

int ha_strata::index_next_same(uchar *buf, const uchar *, uint)
{
  strata::Counted counted(handler_stats);
  sync_scan();
  return finish_read(scan_error(strata_next_same(cursor_, buf), thd()), buf);
}

int ha_strata::index_first(uchar *buf)
{
  int error= seek(STRATA_SEEK_FIRST, nullptr, 0, buf);
  return error == HA_ERR_KEY_NOT_FOUND ? HA_ERR_END_OF_FILE : error;
}

int ha_strata::index_last(uchar *buf)
{
  int error= seek(STRATA_SEEK_LAST, nullptr, 0, buf);
  return error == HA_ERR_KEY_NOT_FOUND ? HA_ERR_END_OF_FILE : error;
}

/* The server checks the end of a range itself; knowing it spares the cursor a look beyond. */
int ha_strata::read_range_first(const key_range *start, const key_range *end, bool equal, bool sorted)
{
  set_bound(end);
  in_range_= true;
  int error= handler::read_range_first(start, end, equal, sorted);
  in_range_= false;
  return error;
}

void ha_strata::unlock_row() { strata_unlock_row(cursor_); }

void ha_strata::try_semi_consistent_read(bool yes) { strata_cursor_semi_consistent(cursor_, yes); }

bool ha_strata::was_semi_consistent_read() { return strata_cursor_is_unlocked(cursor_); }

/* ---- conditions and batches of reads ---- */

Item *ha_strata::idx_cond_push(uint index, Item *condition)
{
  if (traits_[index].has_virtual || !traits_[index].prefixed.empty())
    return condition;
  pushed_idx_cond= condition;
  pushed_idx_cond_keyno= index;
  in_range_check_pushed_down= true;
  return nullptr;
}

void ha_strata::cancel_pushed_idx_cond()
{
  handler::cancel_pushed_idx_cond();
  if (cursor_)
    sync_condition();
}

bool ha_strata::rowid_filter_push(Rowid_filter *filter)
{
  pushed_rowid_filter= filter;
  return false;
}

void ha_strata::cancel_pushed_rowid_filter()
{
  handler::cancel_pushed_rowid_filter();
  if (cursor_)
    sync_condition();
}

ha_rows ha_strata::multi_range_read_info_const(uint index, RANGE_SEQ_IF *seq, void *seq_param, uint ranges,
                                               uint *buffer_size, uint *flags, MRR_LIMIT_PARAMETER Cost_estimate *cost)
{
  mrr_.init(this, table);
  /* Sorted batches would lock rows that the statement then does not ask for. */
  if (locking_.lock != STRATA_LOCK_NONE)
    *flags|= HA_MRR_USE_DEFAULT_IMPL;
  return mrr_.dsmrr_info_const(index, seq, seq_param, ranges, buffer_size, flags, MRR_LIMIT cost);
}

ha_rows ha_strata::multi_range_read_info(uint index, uint ranges, uint keys, uint key_parts, uint *buffer_size,
                                         uint *flags, Cost_estimate *cost)
{
  mrr_.init(this, table);
  if (locking_.lock != STRATA_LOCK_NONE)
    *flags|= HA_MRR_USE_DEFAULT_IMPL;
  return mrr_.dsmrr_info(index, ranges, keys, key_parts, buffer_size, flags, cost);
}

int ha_strata::multi_range_read_init(RANGE_SEQ_IF *seq, void *seq_param, uint ranges, uint mode,
                                     HANDLER_BUFFER *buffer)
{
  return mrr_.dsmrr_init(this, seq, seq_param, ranges, mode, buffer);
}

int ha_strata::multi_range_read_next(range_id_t *range) { return mrr_.dsmrr_next(range); }

int ha_strata::multi_range_read_explain_info(uint mode, char *text, size_t size)
{
  return mrr_.dsmrr_explain_info(mode, text, size);
}

/* ---- writing ---- */

/* A value that the counter has not given, by the user or by SET INSERT_ID, moves it on. */
void ha_strata::raise_auto_increment()
{
  Field *field= table->found_next_number_field;
  if (field->is_null())
    return;
  longlong value= field->val_int();
  if (value > 0 || (value && (field->flags & UNSIGNED_FLAG)))
    strata_autoinc_raise(table_, (ulonglong) value);
}

int ha_strata::write_row(const uchar *buf)
{
  strata::Counted counted(handler_stats);
  bool own_record= buf == table->record[0];
  if (table->next_number_field && own_record)
  {
    autoinc_result_= STRATA_OK;
    if (int error= update_auto_increment())
    {
      /* The server knows only that there was no value; a full disk or a stopped store has a name. */
      bool has_name= autoinc_result_ != STRATA_OK && autoinc_result_ != STRATA_AUTOINC_EXHAUSTED;
      return has_name ? handler_error(autoinc_result_, thd()) : error;
    }
  }
  duplicate_index= -1;
  int result= strata_insert(cursor_, buf, &duplicate_index);
  if (result != STRATA_OK)
    return insert_failed(buf, result);
  if (own_record && table->found_next_number_field && !table->s->next_number_keypart)
    raise_auto_increment();
  return 0;
}

/* The server locks every table before it writes, but for a temporary sequence that it has just made: into that it writes the
   first row at once. The cursor then has no session. Only after a failure is this asked: other writes need not. */
int ha_strata::insert_failed(const uchar *buf, int result)
{
  bool is_first= result == STRATA_INVALID && table->s->tmp_table != NO_TMP_TABLE &&
                 table->s->table_type == TABLE_TYPE_SEQUENCE;
  if (!is_first)
    return handler_error(result, thd());
  Request request;
  request.request= STRATA_WRITE;
  if (int error= begin(thd(), request))
    return error;
  result= strata_insert(cursor_, buf, &duplicate_index);
  strata_cursor_mode(cursor_, nullptr, STRATA_LOCK_NONE, STRATA_WAIT);
  return handler_error(result, thd());
}

int ha_strata::update_row(const uchar *old_row, const uchar *new_row)
{
  strata::Counted counted(handler_stats);
  duplicate_index= -1;
  int result= strata_update(cursor_, old_row, new_row, &duplicate_index);
  Field *number= table->found_next_number_field;
  if (result == STRATA_OK && number && !table->s->next_number_keypart && new_row == table->record[0] &&
      bitmap_is_set(table->write_set, number->field_index))
    raise_auto_increment();
  return handler_error(result, thd());
}

int ha_strata::delete_row(const uchar *buf)
{
  strata::Counted counted(handler_stats);
  return handler_error(strata_delete(cursor_, buf), thd());
}

void ha_strata::get_auto_increment(ulonglong offset, ulonglong increment, ulonglong desired, ulonglong *first,
                                   ulonglong *reserved)
{
  if (table->s->next_number_keypart)
  {
    /* A counter within each group of a key: the server looks up the group's last row. */
    handler::get_auto_increment(offset, increment, desired, first, reserved);
    return;
  }
  uint64_t value= 0;
  ulonglong most= table->found_next_number_field->get_max_int_value();
  int result= strata_autoinc_reserve(table_, offset, increment, desired, most, &value);
  autoinc_result_= result;
  if (result == STRATA_OK)
    *first= value;
  else /* a value out of range tells the user more than none */
    *first= result == STRATA_AUTOINC_EXHAUSTED && most < ULONGLONG_MAX ? most + 1 : ULONGLONG_MAX;
  *reserved= desired;
}

int ha_strata::reset_auto_increment(ulonglong value)
{
  return handler_error(strata_autoinc_set(table_, value), thd());
}
