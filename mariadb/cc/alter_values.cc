/* Copyright (C) 2026 the Strata authors. SPDX-License-Identifier: GPL-2.0-only */

#include "alter_values.h"
#include "sql_alter.h"
#include "sql_class.h"
#include <vector>

namespace strata {
namespace {

/* Columns of one table, by their numbers. */
using Columns= std::vector<bool>;

std::string text_of(Virtual_column_info *computed)
{
  StringBuffer<256> text(system_charset_info);
  computed->print(&text);
  return std::string(text.ptr(), text.length());
}

/* Generated columns of both tables whose expressions or types differ. The text is compared: other names of columns make it another one. */
void find_changed(const TABLE *altered, const Alter_inplace_info *info, Columns *old_ones, Columns *new_ones)
{
  List_iterator_fast<Create_field> list(info->alter_info->create_list);
  for (Field **to= altered->field; *to; to++)
  {
    const Create_field *definition= list++;
    if (!definition)
      return;
    const Field *from= definition->field;
    if (from && from->vcol_info && (*to)->vcol_info &&
        (!from->is_equal(*definition) || text_of(from->vcol_info) != text_of((*to)->vcol_info)))
      (*old_ones)[from->field_index]= (*new_ones)[(*to)->field_index]= true;
  }
}

/* Is a column among these, or computed from one? */
bool comes_from(TABLE *table, const Field *field, const Columns &columns)
{
  if (columns[field->field_index])
    return true;
  /* The server's walk puts the columns of an expression, and of those that it is made of, into read_set. */
  MY_BITMAP *read_set= table->read_set;
  bitmap_clear_all(&table->tmp_set);
  table->read_set= &table->tmp_set;
  field->vcol_info->expr->walk(&Item::register_field_in_read_map, true, table);
  table->read_set= read_set;
  for (uint i= 0; i < table->s->fields; i++)
    if (columns[i] && bitmap_is_set(&table->tmp_set, i))
      return true;
  return false;
}

bool keeps_any_of(TABLE *table, const Columns &columns)
{
  constexpr uint32 KEPT= PART_KEY_FLAG | PART_INDIRECT_KEY_FLAG | FIELD_IN_PART_FUNC_FLAG;
  for (Field **field= table->vfield; field && *field; field++)
    if (((*field)->stored_in_db() || ((*field)->flags & KEPT)) && comes_from(table, *field, columns))
      return true;
  return false;
}

} // namespace

bool may_change(const Field *to, const Create_field &definition)
{
  const Field *from= definition.field;
  return from && (to->vcol_info || from->vcol_info || !from->is_equal(definition) || (from->maybe_null() && !to->maybe_null()));
}

bool changes_kept(TABLE *table, TABLE *altered, const Alter_inplace_info *info)
{
  Columns old_ones(table->s->fields), new_ones(altered->s->fields);
  find_changed(altered, info, &old_ones, &new_ones);
  return keeps_any_of(table, old_ones) || keeps_any_of(altered, new_ones);
}

const Create_field *definition_of(const Field *from, const Alter_inplace_info *info)
{
  List_iterator_fast<Create_field> list(info->alter_info->create_list);
  while (const Create_field *definition= list++)
    if (definition->field == from)
      return definition;
  return nullptr;
}

} // namespace strata
