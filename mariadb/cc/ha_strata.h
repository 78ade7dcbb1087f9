/* Copyright (C) 2026 the Strata authors. SPDX-License-Identifier: GPL-2.0-only */

/* The handler: one per open TABLE. It holds a reference to the row layer's table and one cursor of its own. */
#ifndef HA_STRATA_H
#define HA_STRATA_H

#include "glue.h"
#include <deque>
#include <string>

namespace strata {
class Alteration;
}

class ha_strata final : public handler
{
public:
  ha_strata(handlerton *hton, TABLE_SHARE *share) : handler(hton, share) {}
  ~ha_strata() override { release(); }

  /* ---- what the engine can do ---- */
  Table_flags table_flags() const override;
  ulong index_flags(uint index, uint part, bool all_parts) const override;
  const char *index_type(uint) override { return "BTREE"; }
  uint max_supported_keys() const override { return MAX_KEY; }
  uint max_supported_key_parts() const override { return MAX_REF_PARTS; }
  uint max_supported_key_length() const override { return MAX_DATA_LENGTH_FOR_KEY; }
  uint max_supported_key_part_length() const override { return MAX_DATA_LENGTH_FOR_KEY; }
  const key_map *keys_to_use_for_scanning() override { return &key_map_full; }
  uint8 table_cache_type() override { return HA_CACHE_TBL_ASKTRANSACT; }
  my_bool register_query_cache_table(THD *thd, const char *path, uint length, qc_engine_callback *callback,
                                     ulonglong *version) override;
  bool get_error_message(int error, String *out) override;

  /* ---- life cycle and definition ---- */
  handler *clone(const char *name, MEM_ROOT *mem_root) override;
  int open(const char *name, int mode, uint test_if_locked) override;
  int close() override;
  int create(const char *name, TABLE *form, HA_CREATE_INFO *create_info) override;
  int delete_table(const char *name) override;
  int rename_table(const char *from, const char *to) override;
  int truncate() override;
  void update_create_info(HA_CREATE_INFO *create_info) override;
  bool check_if_incompatible_data(HA_CREATE_INFO *create_info, uint table_changes) override;

  /* ---- ALTER TABLE in place ---- */
  bool can_convert_nocopy(const Field &field, const Column_definition &to) const override;
  Compare_keys compare_key_parts(const Field &old_field, const Column_definition &new_field, const KEY_PART_INFO &old_part,
                                 const KEY_PART_INFO &new_part) const override;
  enum_alter_inplace_result check_if_supported_inplace_alter(TABLE *altered, Alter_inplace_info *info) override;
  bool prepare_inplace_alter_table(TABLE *altered, Alter_inplace_info *info) override;
  bool inplace_alter_table(TABLE *altered, Alter_inplace_info *info) override;
  bool commit_inplace_alter_table(TABLE *altered, Alter_inplace_info *info, bool commit) override;

  /* ---- foreign keys ---- */
  int get_foreign_key_list(THD *thd, List<FOREIGN_KEY_INFO> *list) override;
  int get_parent_foreign_key_list(THD *thd, List<FOREIGN_KEY_INFO> *list) override;
  bool referenced_by_foreign_key() const noexcept override;
  bool can_switch_engines() override;
  bool is_fk_defined_on_table_or_index(uint index) override;
  char *get_foreign_key_create_info() override;
  void free_foreign_key_create_info(char *text) override;
  /* For StrataCallbacks: a child as a statement that changes its parent has it open. */
  static const StrataTable *child_table(const void *thd, const char *name);
  static int compute_child(const void *thd, const char *name, uchar *record, int is_new);
  bool get_foreign_dup_key(char *child, uint child_length, char *key, uint key_length) override;

  /* ---- statements ---- */
  uint lock_count() const override { return 0; } /* the server's table locks are not used */
  THR_LOCK_DATA **store_lock(THD *thd, THR_LOCK_DATA **to, thr_lock_type type) override;
  int external_lock(THD *thd, int type) override;
  int start_stmt(THD *thd, thr_lock_type type) override;
  int reset() override;
  int extra(ha_extra_function operation) override;
  void column_bitmaps_signal() override;

  /* ---- reading ---- */
  int rnd_init(bool scan) override;
  int rnd_end() override;
  int rnd_next(uchar *buf) override;
  int rnd_pos(uchar *buf, uchar *pos) override;
  void position(const uchar *record) override;
  int cmp_ref(const uchar *a, const uchar *b) override;
  int index_init(uint index, bool sorted) override;
  int index_end() override;
  int index_read_map(uchar *buf, const uchar *key, key_part_map parts, ha_rkey_function mode) override;
  int index_read_last_map(uchar *buf, const uchar *key, key_part_map parts) override;
  int index_next(uchar *buf) override;
  int index_prev(uchar *buf) override;
  int index_first(uchar *buf) override;
  int index_last(uchar *buf) override;
  int index_next_same(uchar *buf, const uchar *key, uint length) override;
  int read_range_first(const key_range *start, const key_range *end, bool equal, bool sorted) override;
  void unlock_row() override;
  void try_semi_consistent_read(bool yes) override;
  bool was_semi_consistent_read() override;

  /* ---- conditions and batches of reads ---- */
  Item *idx_cond_push(uint index, Item *condition) override;
  void cancel_pushed_idx_cond() override;
  bool rowid_filter_push(Rowid_filter *filter) override;
  void cancel_pushed_rowid_filter() override;
  ha_rows multi_range_read_info_const(uint index, RANGE_SEQ_IF *seq, void *seq_param, uint ranges, uint *buffer_size,
                                      uint *flags, MRR_LIMIT_PARAMETER Cost_estimate *cost) override;
  ha_rows multi_range_read_info(uint index, uint ranges, uint keys, uint key_parts, uint *buffer_size, uint *flags,
                                Cost_estimate *cost) override;
  int multi_range_read_init(RANGE_SEQ_IF *seq, void *seq_param, uint ranges, uint mode, HANDLER_BUFFER *buffer) override;
  int multi_range_read_next(range_id_t *range) override;
  int multi_range_read_explain_info(uint mode, char *text, size_t size) override;

  /* ---- writing ---- */
  int write_row(const uchar *buf) override;
  int update_row(const uchar *old_row, const uchar *new_row) override;
  int delete_row(const uchar *buf) override;
  void get_auto_increment(ulonglong offset, ulonglong increment, ulonglong desired, ulonglong *first,
                          ulonglong *reserved) override;
  int reset_auto_increment(ulonglong value) override;

  /* ---- statistics and maintenance ---- */
  int info(uint what) override;
  ha_rows records_in_range(uint index, const key_range *min, const key_range *max, page_range *pages) override;
#if STRATA_COSTS_IN_READS
  double read_time(uint index, uint ranges, ha_rows rows) override;
#endif
  int check(THD *thd, HA_CHECK_OPT *options) override;
  int optimize(THD *thd, HA_CHECK_OPT *options) override;
  int analyze(THD *thd, HA_CHECK_OPT *options) override;

private:
  /* What the statement wants to do with the table. */
  struct Request
  {
    uint32_t request= STRATA_READ, wait= STRATA_WAIT;
  };
  /* What comes of it: the locks of the rows it reads. */
  struct Locking
  {
    uint32_t lock= STRATA_LOCK_NONE, wait= STRATA_WAIT;
  };
  static Request request_for(thr_lock_type type);

  int attach();  /* opens table and cursor by name_ */
  void release();
  void describe_indexes();
  enum_alter_inplace_result in_place(TABLE *altered, Alter_inplace_info *info, strata::Alteration *alteration);
  bool may_rebuild(const TABLE *altered, const Alter_inplace_info *info, bool converts);
  bool keys_that_stay(const Alter_inplace_info *info, List<FOREIGN_KEY_INFO> *own, List<FOREIGN_KEY_INFO> *incoming);
  /* Do foreign keys lose a column, or have one whose values might be others? The server's checks of them belong to the copy. */
  bool breaks_foreign_key(const Alter_inplace_info *info);
  /* Could a foreign key bring NULL to a column that takes none in the end? InnoDB refuses that, and so does the server before it
     copies. */
  bool brings_null(const Alter_inplace_info *info, bool tell);
  bool checks_rows(const strata::Alteration &alteration);
  bool may_check_rows(alter_table_operations asked, const strata::Alteration &alteration) const;
  bool lock_parents(const strata::Alteration &alteration);
  bool alter_failed(int result, int32_t duplicate, TABLE *altered);
  int begin(THD *thd, Request request);
  int begin_past(THD *thd, StrataSession *session, Request request, Locking *locking);
  int end_bulk(bool abort);
  void fill_rec_per_key();

  int begin_scan(int32_t index);
  bool wants_key_only(int32_t index) const;
  bool computes_virtual() { return !indexed_virtual_.empty() && scan_computes_virtual(); }
  bool scan_computes_virtual();
  bool filters_entries() const;
  /* Few tables have virtual columns in indexes, and this is called for each row. */
  int finish_read(int error, uchar *buf) { return error || indexed_virtual_.empty() ? error : add_virtual(buf); }
  int add_virtual(uchar *buf);
  int compute_virtual();
  int compute_neighbour(uchar *buf);
  int compute_record(uchar *record, bool tells);
  void sync_scan(); /* before a read: columns, conditions and keyread as the server wants them now */
  void sync_columns();
  void sync_condition();
  void set_bound(const key_range *end);
  int seek(uint32_t mode, const uchar *key, uint length, uchar *buf);
  static int check_entry(void *self);

  void raise_auto_increment();
  int insert_failed(const uchar *buf, int result);
  THD *thd() const { return table->in_use; }
  /* Has the table foreign keys, or is it named by some? They come and go while it is open. */
  bool is_related() const noexcept { return related_ && __atomic_load_n(related_, __ATOMIC_RELAXED); }

  /* The index that the thread's last write has violated. Not of one handler: where a row moves to another partition, the
     server asks the handler of the one that it leaves. */
  static thread_local int32_t duplicate_index;

  std::string name_;
  StrataTable *table_= nullptr;
  StrataCursor *cursor_= nullptr;
  const uint8_t *related_= nullptr; /* see is_related() */
  std::vector<Field *> indexed_virtual_; /* virtual columns that are part of an index, each once */
  struct IndexTraits
  {
    ulong flags;                /* index_flags(): the optimizer asks again and again */
    std::vector<uint> prefixed; /* columns of which it, or the primary key, holds the beginning only */
    bool has_virtual;
    bool lookup_needs_rows; /* WITHOUT OVERLAPS: the server compares neighbours, whatever read_set says */
  };
  std::vector<IndexTraits> traits_;
  std::deque<String> neighbour_blobs_; /* see compute_neighbour() */
  DsMrr_impl mrr_;

  Request requested_;            /* by store_lock */
  bool is_requested_= false;
  Request request_;              /* in force */
  Locking locking_;              /* in force */
  int autoinc_result_= 0; /* StrataResult of the last reservation of auto-increment values */

  static constexpr int32_t NO_SCAN= -2, TABLE_SCAN= -1;
  int32_t scan_index_= NO_SCAN;
  bool key_only_= false;         /* of the scan */
  bool at_start_= false;         /* rnd_next() has not been called yet */
  bool bounded_= false, in_range_= false;
  bool condition_= false;        /* check_entry() is installed */
  bool all_columns_= false;      /* the cursor fills all columns */
  bool columns_known_= false;    /* columns_ is what the cursor fills */
  std::vector<uint64_t> columns_;
  std::vector<uint64_t> saved_columns_; /* see compute_virtual() */
  bool bulk_= false;
  bool fills_= false; /* the cursor was told so */
};

namespace strata {
extern ha_create_table_option table_options[];
}

#endif
