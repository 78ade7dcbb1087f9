/* Copyright (C) 2026 the Strata authors. SPDX-License-Identifier: GPL-2.0-only */

/* ALTER TABLE in place. Columns come, go, change places and names, or become wider, and rows are read through the definition they were
   written with; indexes go at once, and come while others change the table. Whether the engine can do what is asked is found out by a
   trial; everything else is copied by the server. */

#include "alter_reasons.h"
#include "alter_values.h"
#include "alteration.h"
#include "errors.h"
#include "ha_strata.h"
#include "partition_info.h"
#include "sql_alter.h"
#include "sql_class.h"
#include <mysql/service_progress_report.h>

using strata::Altered;
using strata::Alteration;
using strata::handler_error;

namespace {

/* What may be asked for, if the trial does not say otherwise. The server writes names, defaults, comments and checks into its own
   file. */
constexpr alter_table_operations DONE_INSTANTLY=
    ALTER_PARSER_ADD_COLUMN | ALTER_PARSER_DROP_COLUMN | ALTER_CHANGE_COLUMN | ALTER_COLUMN_ORDER | ALTER_COLUMN_NAME |
    ALTER_RENAME_COLUMN | ALTER_INDEX_ORDER | ALTER_COLUMN_INDEX_LENGTH |
    ALTER_CHANGE_COLUMN_DEFAULT | ALTER_COLUMN_OPTION | ALTER_ADD_STORED_BASE_COLUMN | ALTER_ADD_VIRTUAL_COLUMN |
    ALTER_DROP_STORED_COLUMN | ALTER_DROP_VIRTUAL_COLUMN | ALTER_STORED_COLUMN_ORDER | ALTER_VIRTUAL_COLUMN_ORDER |
    ALTER_COLUMN_NULLABLE | ALTER_COLUMN_TYPE_CHANGE_BY_ENGINE | ALTER_OPTIONS | ALTER_RENAME | ALTER_RENAME_INDEX |
    ALTER_CHANGE_INDEX_COMMENT | ALTER_INDEX_IGNORABILITY | ALTER_DROP_CHECK_CONSTRAINT | ALTER_PARTITIONED |
    ALTER_DROP_NON_UNIQUE_NON_PRIM_INDEX | ALTER_DROP_UNIQUE_INDEX | ALTER_ADD_FOREIGN_KEY | ALTER_DROP_FOREIGN_KEY |
    ALTER_VIRTUAL_GCOL_EXPR;

/* What may stand beside a foreign key whose rows are looked at: the columns are those that there are. */
constexpr alter_table_operations BESIDE_CHECKS=
    ALTER_ADD_FOREIGN_KEY | ALTER_DROP_FOREIGN_KEY | ALTER_ADD_NON_UNIQUE_NON_PRIM_INDEX | ALTER_ADD_UNIQUE_INDEX |
    ALTER_DROP_NON_UNIQUE_NON_PRIM_INDEX | ALTER_DROP_UNIQUE_INDEX | ALTER_RENAME_INDEX | ALTER_CHANGE_INDEX_COMMENT |
    ALTER_INDEX_IGNORABILITY | ALTER_INDEX_ORDER | ALTER_OPTIONS | ALTER_RENAME;

/* What is done beside others who change the table. */
constexpr alter_table_operations DONE_ONLINE= ALTER_ADD_NON_UNIQUE_NON_PRIM_INDEX | ALTER_ADD_UNIQUE_INDEX;

/* What changes values of columns that there are, or computes some. */
constexpr alter_table_operations CONVERTS= ALTER_COLUMN_NOT_NULLABLE | ALTER_STORED_COLUMN_TYPE | ALTER_STORED_GCOL_EXPR |
                                           ALTER_ADD_STORED_GENERATED_COLUMN;

/* What needs the rows written anew, which is done beside others, too. */
constexpr alter_table_operations REBUILDS= CONVERTS | ALTER_ADD_PK_INDEX | ALTER_DROP_PK_INDEX | ALTER_RECREATE_TABLE |
                                           ALTER_VIRTUAL_COLUMN_TYPE | ALTER_COLUMN_VCOL | ALTER_DROP_SYSTEM_VERSIONING;

bool is_integer(enum_field_types type)
{
  switch (type) {
  case MYSQL_TYPE_TINY:
  case MYSQL_TYPE_SHORT:
  case MYSQL_TYPE_INT24:
  case MYSQL_TYPE_LONG:
  case MYSQL_TYPE_LONGLONG:
    return true;
  default:
    return false;
  }
}

/* Values are text, or bytes, and mean the same however long the column is. */
bool is_text(enum_field_types type)
{
  switch (type) {
  case MYSQL_TYPE_STRING:
  case MYSQL_TYPE_VARCHAR:
  case MYSQL_TYPE_TINY_BLOB:
  case MYSQL_TYPE_BLOB:
  case MYSQL_TYPE_MEDIUM_BLOB:
  case MYSQL_TYPE_LONG_BLOB:
    return true;
  default:
    return false;
  }
}

/* Texts keep their bytes in another collation of the same character set, and in the larger form of UTF-8. What is computed from them may
   be another value: generated columns, the partition of a row. */
bool can_change_collation(const Field &field, const CHARSET_INFO *to)
{
  const CHARSET_INFO *from= field.charset();
  if (field.table->vfield || field.table->part_info || from == &my_charset_bin || to == &my_charset_bin)
    return false;
  return my_charset_same(from, to) || (!strcmp(from->cs_name.str, "utf8mb3") && !strcmp(to->cs_name.str, "utf8mb4"));
}

} // namespace

/* Asked of each column that is not the same as before: might its values stay? The trial says whether they do. */
bool ha_strata::can_convert_nocopy(const Field &field, const Column_definition &to) const
{
  enum_field_types from_type= field.real_type(), to_type= to.real_field_type();
  if (field.compression_method() || to.compression_method() || strata::is_vector(field.type_handler()) ||
      strata::is_vector(to.type_handler()))
    return false;
  if (is_integer(from_type) && is_integer(to_type))
    return true;
  if (from_type == MYSQL_TYPE_FLOAT && to_type == MYSQL_TYPE_DOUBLE)
    return field.decimals() == NOT_FIXED_DEC && to.decimals == NOT_FIXED_DEC;
  return is_text(from_type) && is_text(to_type) && (field.charset() == to.charset || can_change_collation(field, to.charset));
}

/* Asked of each part of an index: a VARCHAR may become longer without the index being another one. */
Compare_keys ha_strata::compare_key_parts(const Field &old_field, const Column_definition &new_field, const KEY_PART_INFO &old_part,
                                          const KEY_PART_INFO &new_part) const
{
  if (old_field.is_equal(new_field))
    return old_part.length == new_part.length ? Compare_keys::Equal : Compare_keys::NotEqual;
  if (old_field.real_type() != MYSQL_TYPE_VARCHAR || new_field.real_field_type() != MYSQL_TYPE_VARCHAR ||
      old_field.charset() != new_field.charset || !can_convert_nocopy(old_field, new_field))
    return Compare_keys::NotEqual;
  if (old_part.length == new_part.length)
    return Compare_keys::Equal;
  bool is_whole= old_part.length == old_field.key_length();
  return is_whole && old_part.length < new_part.length ? Compare_keys::EqualButKeyPartLength : Compare_keys::NotEqual;
}

/* Periods of a key that become others, or get another key, may meet, which nobody but the server can tell. */
static bool is_in_period_key(const TABLE *altered, const Field *field)
{
  for (const KEY *key= altered->key_info, *end= key + altered->s->keys; key != end; key++)
    for (uint p= 0; key->without_overlaps && p < key->user_defined_key_parts; p++)
      if (key->key_part[p].fieldnr == field->field_index + 1U)
        return true;
  return false;
}

/* May the rows be written anew beside others? What they become must follow from each row alone, and rows stay in their partitions. */
bool ha_strata::may_rebuild(const TABLE *altered, const Alter_inplace_info *info, bool converts)
{
  if (altered->s->primary_key >= MAX_KEY && table->s->primary_key < MAX_KEY)
    return false;
  if (!converts)
    return true;
  for (Field **field= table->field; table->part_info && *field; field++)
    if ((*field)->vcol_info && ((*field)->flags & FIELD_IN_PART_FUNC_FLAG))
      return false;
  List_iterator_fast<Create_field> list(info->alter_info->create_list);
  Dummy_error_handler quiet;
  for (Field **to= altered->field; *to; to++)
  {
    const Create_field *definition= list++;
    if (!strata::may_change(*to, *definition))
      continue;
    Field *from= definition->field;
    const bool stays= from->is_equal(*definition) && !from->vcol_info && !(*to)->vcol_info && ha_thd()->is_strict_mode();
    if ((table->part_info && (from->flags & FIELD_IN_PART_FUNC_FLAG) && !stays) || is_in_period_key(altered, *to))
      return false;
    ha_thd()->push_internal_handler(&quiet);
    bool is_refused= !(*to)->vcol_info && (*to)->check_assignability_from(from, false);
    ha_thd()->pop_internal_handler();
    if (is_refused)
      return false; /* the server says so when it copies */
  }
  return true;
}

/* Must the rows that are there have their parents? */
bool ha_strata::checks_rows(const Alteration &alteration)
{
  return alteration.keys().count() && !thd_test_options(ha_thd(), OPTION_NO_FOREIGN_KEY_CHECKS);
}

bool ha_strata::may_check_rows(alter_table_operations asked, const Alteration &alteration) const
{
  if (asked & ~BESIDE_CHECKS)
    return false;
  /* A key may have virtual columns, which nobody computes for it. */
  for (Field **field= table->vfield; field && *field; field++)
    if (!(*field)->stored_in_db() && alteration.keys().has_column((*field)->field_name))
      return false;
  return true;
}

/* Has a partition options of its own (its clause of CREATE TABLE) that an ALTER in place, which gives all partitions what the table says,
   would take from it? */
static bool has_options_of_its_own(const TABLE *table, bool rebuilds)
{
  const ha_table_option_struct *whole= table->s->option_struct;
  if (!table->part_info || !whole)
    return false;
  auto differs= [&](const partition_element *part) {
    const ha_table_option_struct *own= part->option_struct;
    const char *ttl= own && own->ttl ? own->ttl : "", *of_whole= whole->ttl ? whole->ttl : "";
    return own && (strcmp(ttl, of_whole) || (rebuilds && own->compression != whole->compression));
  };
  List_iterator_fast<partition_element> parts(table->part_info->partitions);
  while (partition_element *part= parts++)
  {
    if (differs(part))
      return true;
    List_iterator_fast<partition_element> subparts(part->subpartitions);
    while (const partition_element *subpart= subparts++)
      if (differs(subpart))
        return true;
  }
  return false;
}

enum_alter_inplace_result ha_strata::check_if_supported_inplace_alter(TABLE *altered, Alter_inplace_info *info)
{
  Alteration alteration(ha_thd());
  enum_alter_inplace_result result= in_place(altered, info, &alteration);
  const char *reason= nullptr;
  if (result == HA_ALTER_INPLACE_NOCOPY_NO_LOCK)
    reason= strata::why_not_instant(info);
  else if (result != HA_ALTER_INPLACE_INSTANT)
    reason= strata::why_copied(ha_thd(), table, altered, info);
  if (reason)
    info->unsupported_reason= reason;
  return result;
}

enum_alter_inplace_result ha_strata::in_place(TABLE *altered, Alter_inplace_info *info, Alteration *alteration)
{
  const alter_table_operations asked= info->handler_flags;
  if (brings_null(info, false))
    return HA_ALTER_INPLACE_COPY_NO_LOCK; /* to be told once the server has settled for this way */
  if ((asked & ~(DONE_INSTANTLY | DONE_ONLINE | REBUILDS)) || info->ignore || info->error_if_not_empty ||
      breaks_foreign_key(info))
    return HA_ALTER_INPLACE_NOT_SUPPORTED;
  if ((altered->versioned() && !table->versioned()) || table->s->tmp_table != NO_TMP_TABLE)
    return HA_ALTER_INPLACE_NOT_SUPPORTED;
  const HA_CREATE_INFO *create_info= info->create_info;
  const ha_table_option_struct *options= create_info->option_struct;
  if (create_info->used_fields & HA_CREATE_USED_SEQUENCE)
    return HA_ALTER_INPLACE_NOT_SUPPORTED;
  if (options && table->s->option_struct &&
      (options->encrypted != table->s->option_struct->encrypted ||
       options->encryption_key != table->s->option_struct->encryption_key))
    return HA_ALTER_INPLACE_NOT_SUPPORTED;
  /* Who names the engine wants the rows written anew. */
  const bool drops_past= table->versioned() && !altered->versioned();
  bool rebuilds= drops_past || (asked & REBUILDS) || (create_info->used_fields & HA_CREATE_USED_ENGINE) ||
                 (options && table->s->option_struct && options->compression != table->s->option_struct->compression) ||
                 ((asked & ALTER_VIRTUAL_GCOL_EXPR) && strata::changes_kept(table, altered, info));
  /* The table that the server has for an index of vectors refers to the rows: by their hidden ids, which others would have, or by
     their keys, which must not become longer. */
  const bool has_vector_index= strata::has_vector_index(table->s);
  if (has_vector_index && (rebuilds || strata::rows_expire(altered->s) ||
                           (asked & (ALTER_COLUMN_TYPE_CHANGE_BY_ENGINE | ALTER_COLUMN_INDEX_LENGTH))))
    return HA_ALTER_INPLACE_NOT_SUPPORTED;
  if (has_options_of_its_own(table, rebuilds))
  {
    info->unsupported_reason= "a partition has options of its own";
    return HA_ALTER_INPLACE_NOT_SUPPORTED;
  }
  String why;
  if (!rebuilds && alteration->describe(ha_thd(), table, altered, info, false))
  {
    int result= strata_alter_check(strata::store, table_, alteration->get());
    if (alteration->keys().has_words_in_place(ha_thd(), result))
      alteration->refusal= result; /* to be told once the server has settled for this way */
    if (checks_rows(*alteration) && (result == STRATA_OK || alteration->refusal))
      return may_check_rows(asked, *alteration) ? HA_ALTER_INPLACE_NOCOPY_LOCK : HA_ALTER_INPLACE_NOT_SUPPORTED;
    if (result == STRATA_OK || alteration->refusal)
      return alteration->has_new_indexes() ? HA_ALTER_INPLACE_NOCOPY_NO_LOCK : HA_ALTER_INPLACE_INSTANT;
    if (!strata::error_message(&why))
      info->unsupported_reason= thd_strmake(ha_thd(), why.ptr(), why.length());
  }
  if (has_vector_index || table->s->table_type == TABLE_TYPE_SEQUENCE ||
      !alteration->describe(ha_thd(), table, altered, info, true) || !may_rebuild(altered, info, alteration->converts()) ||
      checks_rows(*alteration))
    return HA_ALTER_INPLACE_NOT_SUPPORTED;
  /* Rows are numbered in their order, so that none may come between. A DELETE meanwhile would be of the past that goes. */
  if (strata_alter_check(strata::store, table_, alteration->get()) == STRATA_OK)
    return alteration->numbers() || drops_past ? HA_ALTER_INPLACE_COPY_LOCK : HA_ALTER_INPLACE_COPY_NO_LOCK;
  if (!strata::error_message(&why))
    info->unsupported_reason= thd_strmake(ha_thd(), why.ptr(), why.length());
  return HA_ALTER_INPLACE_NOT_SUPPORTED;
}

/* Tells why a part of an ALTER has failed; true if it has. */
bool ha_strata::alter_failed(int result, int32_t duplicate, TABLE *altered)
{
  if (result == STRATA_OK)
    return false;
  if (result == STRATA_DUPLICATE && duplicate >= 0)
    print_keydup_error(altered, &altered->key_info[duplicate], MYF(0));
  else if (result == STRATA_INDEX_OF_FOREIGN)
  {
    char name[NAME_LEN + 1];
    strata_failed_name(0, name, sizeof name);
    my_error(ER_DROP_INDEX_FK, MYF(0), name);
  }
  else
  {
    THD *thd= ha_thd();
    /* The server makes errors of warnings meanwhile; details are none. */
    bool aborts= thd->abort_on_warning;
    thd->abort_on_warning= false;
    int error= handler_error(result, thd);
    thd->abort_on_warning= aborts;
    if (!thd->is_error())
      print_error(error, MYF(0));
  }
  return true;
}

bool ha_strata::prepare_inplace_alter_table(TABLE *altered, Alter_inplace_info *info)
{
  Altered *ctx= new (ha_thd()->mem_root) Altered(table_);
  info->handler_ctx= ctx;
  if (!ctx)
    return true;
  if (brings_null(info, true))
    return true;
  Alteration alteration(ha_thd());
  if (in_place(altered, info, &alteration) == HA_ALTER_INPLACE_NOT_SUPPORTED)
  {
    print_error(HA_ERR_UNSUPPORTED, MYF(0));
    return true;
  }
  if (alteration.refusal)
    return alteration.keys().tell_failure(ha_thd(), alteration.refusal, HA_ERR_CANNOT_ADD_FOREIGN);
  ctx->rebuilds= alteration.rebuilds();
  /* The partitions of a table are numbered one after the other, from where the one before has ended. */
  ulonglong *counter= &info->create_info->auto_increment_value;
  if (alteration.numbers())
    *counter= info->create_info->used_fields & HA_CREATE_USED_AUTO ? std::max<ulonglong>(*counter, 1) : 1;
  if (alter_failed(strata_table_await_prepared(table_, strata::lock_wait_us(ha_thd())), -1, altered))
    return true;
  ha_thd()->get_stmt_da()->reset_current_row_for_warning(1);
  return alteration.has_new_indexes() &&
         alter_failed(strata_build_begin(strata::store, table_, alteration.get(), &ctx->build), -1, altered);
}

/* Every row must find its parent by the foreign keys that come, and keep it until they are in force. True: an error was told. */
bool ha_strata::lock_parents(const Alteration &alteration)
{
  THD *thd= ha_thd();
  if (alteration.keys().lock_tables(thd))
    return true;
  StrataSession *session;
  bool no_wait;
  int error= strata::begin_statement(thd, &session, &no_wait);
  if (!error)
    error= handler_error(strata_alter_lock_parents(strata::store, table_, session, alteration.get()), thd);
  if (error && !thd->is_error())
    print_error(error, MYF(0));
  return error;
}

bool ha_strata::inplace_alter_table(TABLE *altered, Alter_inplace_info *info)
{
  Altered *ctx= static_cast<Altered *>(info->handler_ctx);
  if (!ctx->build && !(info->handler_flags & ALTER_ADD_FOREIGN_KEY))
    return false;
  THD *thd= ha_thd();
  Alteration alteration(thd);
  if (!alteration.describe(thd, table, altered, info, ctx->rebuilds))
  {
    print_error(HA_ERR_UNSUPPORTED, MYF(0));
    return true;
  }
  if (checks_rows(alteration) && lock_parents(alteration))
    return true;
  if (!ctx->build)
    return false;
  strata::Conversion conversion(thd, table, altered, info, alteration, &info->create_info->auto_increment_value);
  strata::Telling telling(thd);
  StrataRows rows= conversion.rows(&telling);
  int32_t duplicate= -1;
  int result= strata_build_run(ctx->build, &rows, &duplicate);
  return alter_failed(result, duplicate, altered);
}

/* All partitions of a table change together. */
bool ha_strata::commit_inplace_alter_table(TABLE *altered, Alter_inplace_info *info, bool commit)
{
  if (!commit)
  {
    if (Altered *ctx= static_cast<Altered *>(info->handler_ctx))
    {
      strata_build_free(ctx->build);
      ctx->build= nullptr;
    }
    return false;
  }
  std::vector<StrataTable *> tables;
  std::vector<StrataBuild *> builds;
  bool rebuilds= false;
  auto add= [&](inplace_alter_handler_ctx *part) {
    const Altered *ctx= static_cast<Altered *>(part);
    tables.push_back(ctx->table);
    rebuilds|= ctx->rebuilds;
    if (ctx->build)
      builds.push_back(ctx->build);
  };
  if (info->group_commit_ctx)
    for (inplace_alter_handler_ctx **part= info->group_commit_ctx; *part; part++)
      add(*part);
  else
    add(info->handler_ctx);
  info->group_commit_ctx= nullptr;

  THD *thd= ha_thd();
  int error= strata::wait_for_earlier_commits(thd);
  /* Children that rely on the indexes which there are. */
  if (!error)
    error= strata::lock_parent(thd, name_.c_str());
  Alteration alteration(thd);
  if (!error && !alteration.describe(thd, table, altered, info, rebuilds))
    error= HA_ERR_UNSUPPORTED;
  /* First, as nothing may fail once the engine has the new definition and the server the old one. */
  if ((info->create_info->used_fields & HA_CREATE_USED_AUTO) && table->found_next_number_field && !alteration.numbers())
    for (size_t i= 0; i < tables.size() && !error; i++)
      error= handler_error(strata_autoinc_set(tables[i], info->create_info->auto_increment_value), thd);
  if (error)
  {
    print_error(error, MYF(0));
    return true;
  }
  for (StrataTable *part : tables)
    if (alter_failed(strata_table_await_prepared(part, strata::lock_wait_us(thd)), -1, altered))
      return true;
  if (builds.empty())
    return alter_failed(strata_alter_tables(strata::store, tables.data(), tables.size(), alteration.get()), -1, altered);
  strata::Conversion conversion(thd, table, altered, info, alteration, &info->create_info->auto_increment_value);
  strata::Telling telling(thd);
  StrataRows rows= conversion.rows(&telling);
  for (StrataBuild *build : builds)
  {
    int32_t duplicate= -1;
    int result= strata_build_end(build, &rows, &duplicate);
    if (alter_failed(result, duplicate, altered))
      return true;
  }
  alteration.count_from(info->create_info->auto_increment_value);
  return alter_failed(strata_build_commit(strata::store, builds.data(), builds.size(), alteration.get()), -1, altered);
}

namespace strata {

/* Asked after a crash in the middle of an ALTER: 0 if the table has this version of its definition already. */
int check_version(handlerton *, const char *path, const LEX_CUSTRING *version, ulonglong)
{
  uint8_t present[MY_UUID_SIZE];
  if (version->length != sizeof present || strata_table_version(store, path, present) != STRATA_OK)
    return 1;
  return memcmp(present, version->str, sizeof present) != 0;
}

} // namespace strata
