/* Copyright (C) 2026 the Strata authors. SPDX-License-Identifier: GPL-2.0-only */

/* ALTER TABLE that leaves the rows where they are: columns come, go, change places and names, or become wider, and rows are read
   through the definition they were written with. Whether the engine can do what is asked is found out by a trial; everything else
   is copied by the server. */

#include "alter_reasons.h"
#include "errors.h"
#include "ha_strata.h"
#include "sql_alter.h"
#include "sql_class.h"
#include <string>

using strata::Definition;
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
    ALTER_CHANGE_INDEX_COMMENT | ALTER_INDEX_IGNORABILITY | ALTER_DROP_CHECK_CONSTRAINT | ALTER_PARTITIONED;

/* Of these, what may make a foreign key impossible: the server's checks belong to the copy. Names are followed. */
constexpr alter_table_operations CONCERNS_KEYS= ALTER_DROP_STORED_COLUMN | ALTER_COLUMN_NULLABLE |
                                                ALTER_COLUMN_TYPE_CHANGE_BY_ENGINE;

/* The table that an ALTER is about, one of a partitioned table's. */
class Altered : public inplace_alter_handler_ctx
{
public:
  explicit Altered(StrataTable *table) : table(table) {}
  StrataTable *table;
};

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

/* Can the default be computed without a row, and is it the same for all? Of what is no constant only the statement's time is. */
bool is_one_value(const Virtual_column_info *value) { return !value || !(value->flags & ~VCOL_TIME_FUNC); }

/* Where the columns of the new definition come from. */
struct Columns
{
  std::vector<int32_t> kept; /* the old column's number; -1: new, and has the value of the new definition's first record */

  /* False if the rows cannot stay. */
  bool find(TABLE *altered, const Alter_inplace_info *info)
  {
    if (altered->s->fields != info->alter_info->create_list.elements)
      return false; /* columns that the server keeps to itself */
    restore_record(altered, s->default_values);
    List_iterator_fast<Create_field> list(info->alter_info->create_list);
    for (Field **to= altered->field; *to; to++)
    {
      const Create_field *from= list++;
      Field *field= *to;
      if (from->field)
      {
        kept.push_back((int32_t) from->field->field_index);
        continue;
      }
      kept.push_back(-1);
      if (!field->stored_in_db())
        continue;
      if (field->vcol_info || field->type() == MYSQL_TYPE_GEOMETRY || (field->flags & AUTO_INCREMENT_FLAG) ||
          !is_one_value(field->default_value))
        return false;
      if (field->default_value && field->set_default())
        return false;
    }
    return true;
  }
};

} // namespace

/* Asked of each column that is not the same as before: might its values stay? The trial says whether they do. */
bool ha_strata::can_convert_nocopy(const Field &field, const Column_definition &to) const
{
  enum_field_types from_type= field.real_type(), to_type= to.real_field_type();
  if (field.compression_method() || to.compression_method())
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

enum_alter_inplace_result ha_strata::check_if_supported_inplace_alter(TABLE *altered, Alter_inplace_info *info)
{
  enum_alter_inplace_result result= is_instant(altered, info) ? HA_ALTER_INPLACE_INSTANT : HA_ALTER_INPLACE_NOT_SUPPORTED;
  if (result == HA_ALTER_INPLACE_NOT_SUPPORTED)
    if (const char *reason= strata::why_copied(ha_thd(), table, altered, info))
      info->unsupported_reason= reason;
  return result;
}

bool ha_strata::is_instant(TABLE *altered, Alter_inplace_info *info)
{
  const alter_table_operations asked= info->handler_flags;
  if ((asked & ~DONE_INSTANTLY) || info->ignore || info->error_if_not_empty || (is_related() && (asked & CONCERNS_KEYS)))
    return false;
  if (table->versioned() || altered->versioned() || table->s->tmp_table != NO_TMP_TABLE)
    return false;
  const HA_CREATE_INFO *create_info= info->create_info;
  /* Who names the engine wants the rows written anew. */
  if (create_info->used_fields & (HA_CREATE_USED_SEQUENCE | HA_CREATE_USED_ENGINE) ||
      table->s->table_type == TABLE_TYPE_SEQUENCE)
    return false;
  const ha_table_option_struct *options= create_info->option_struct;
  if (options && table->s->option_struct && (options->compression != table->s->option_struct->compression ||
                                                 options->encrypted != table->s->option_struct->encrypted ||
                                                 options->encryption_key != table->s->option_struct->encryption_key))
    return false;
  if ((create_info->used_fields & HA_CREATE_USED_AUTO) && table->part_info)
    return false;
  Columns columns;
  Definition definition;
  if (!columns.find(altered, info) || definition.describe(altered, false, options))
    return false;
  if (strata_table_alter(strata::store, &table_, 1, definition.get(), columns.kept.data(), altered->record[0], true) ==
      STRATA_OK)
    return true;
  String why;
  if (!strata::error_message(&why))
    info->unsupported_reason= thd_strmake(ha_thd(), why.ptr(), why.length());
  return false;
}

bool ha_strata::prepare_inplace_alter_table(TABLE *, Alter_inplace_info *info)
{
  info->handler_ctx= new (ha_thd()->mem_root) Altered(table_);
  return !info->handler_ctx;
}

/* The one change. All partitions of a table change together. */
bool ha_strata::commit_inplace_alter_table(TABLE *altered, Alter_inplace_info *info, bool commit)
{
  if (!commit)
    return false;
  std::vector<StrataTable *> tables;
  if (info->group_commit_ctx)
    for (inplace_alter_handler_ctx **part= info->group_commit_ctx; *part; part++)
      tables.push_back(static_cast<Altered *>(*part)->table);
  else
    tables.push_back(table_);
  info->group_commit_ctx= nullptr;

  int error= strata::wait_for_earlier_commits(ha_thd());
  Columns columns;
  Definition definition;
  /* First, as nothing may fail once the engine has the new definition and the server the old one. */
  if (!error && (info->create_info->used_fields & HA_CREATE_USED_AUTO) && table->found_next_number_field)
    error= reset_auto_increment(info->create_info->auto_increment_value);
  if (!error)
    error= columns.find(altered, info)
               ? definition.describe(altered, false, info->create_info->option_struct)
               : HA_ERR_UNSUPPORTED;
  if (!error)
    error= handler_error(strata_table_alter(strata::store, tables.data(), tables.size(), definition.get(),
                                            columns.kept.data(), altered->record[0], false),
                         ha_thd());
  if (error)
    print_error(error, MYF(0));
  return error != 0;
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
