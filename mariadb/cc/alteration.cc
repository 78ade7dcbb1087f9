/* Copyright (C) 2026 the Strata authors. SPDX-License-Identifier: GPL-2.0-only */

#include "alteration.h"
#include "sql_alter.h"
#include "sql_class.h"
#include <algorithm>

namespace strata {
namespace {

/* Can the default be computed without a row, and is it the same for all? Of what is no constant only the statement's time is. */
bool is_one_value(const Virtual_column_info *value) { return !value || !(value->flags & ~VCOL_TIME_FUNC); }

} // namespace

/* Where the columns of the new definition come from; -1: new, with the value of the new definition's first record. False if the rows
   cannot stay. */
bool Alteration::find_columns(TABLE *altered, const Alter_inplace_info *info)
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
      columns_.push_back((int32_t) from->field->field_index);
      continue;
    }
    columns_.push_back(-1);
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

/* Where its indexes come from. */
bool Alteration::find_indexes(const TABLE *table, const TABLE *altered, const Alter_inplace_info *info)
{
  for (uint i= 0; i < altered->s->keys; i++)
  {
    const KEY &key= altered->key_info[i];
    const uint *added= info->index_add_buffer, *end= added + info->index_add_count;
    if (std::find(added, end, i) != end)
    {
      indexes_.push_back(-1);
      continue;
    }
    const LEX_CSTRING *name= &key.name;
    for (const Alter_inplace_info::Rename_key_pair &pair : info->rename_keys)
      if (!lex_string_cmp(system_charset_info, &pair.new_key->name, &key.name))
        name= &pair.old_key->name;
    uint from= 0;
    while (from < table->s->keys && lex_string_cmp(system_charset_info, &table->key_info[from].name, name))
      from++;
    if (from == table->s->keys)
      return false;
    indexes_.push_back((int32_t) from);
  }
  return true;
}

bool Alteration::describe(TABLE *table, TABLE *altered, const Alter_inplace_info *info)
{
  if (!find_columns(altered, info) || !find_indexes(table, altered, info) ||
      definition_.describe(altered, false, info->create_info->option_struct))
    return false;
  alteration_= {definition_.get(), columns_.data(), indexes_.data(), altered->record[0], ddl_.get()};
  return true;
}

bool Alteration::has_new_indexes() const { return std::find(indexes_.begin(), indexes_.end(), -1) != indexes_.end(); }

bool Alteration::same_records(const TABLE *table, const TABLE *altered)
{
  if (table->s->fields != altered->s->fields || table->s->reclength != altered->s->reclength)
    return false;
  for (uint i= 0; i < table->s->fields; i++)
  {
    const Field *field= table->field[i], *other= altered->field[i];
    if (field->real_type() != other->real_type() || field->pack_length() != other->pack_length() ||
        field->offset(table->record[0]) != other->offset(altered->record[0]) || field->charset() != other->charset() ||
        field->maybe_null() != other->maybe_null() ||
        (field->null_ptr && (field->null_bit != other->null_bit || field->null_offset() != other->null_offset())))
      return false;
  }
  return true;
}

} // namespace strata
