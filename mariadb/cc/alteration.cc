/* Copyright (C) 2026 the Strata authors. SPDX-License-Identifier: GPL-2.0-only */

#include "alteration.h"
#include "sql_alter.h"
#include "sql_class.h"
#include <mysql/service_progress_report.h>
#include <algorithm>

namespace strata {
namespace {

/* Can the default be computed without a row, and is it the same for all? Of what is no constant only the statement's time is. */
bool is_one_value(const Virtual_column_info *value) { return !value || !(value->flags & ~VCOL_TIME_FUNC); }

} // namespace

/* Where the columns of the new definition come from; -1: new, with the value of the new definition's first record. False if the rows
   cannot stay. */
bool Alteration::find_columns(TABLE *altered, const Alter_inplace_info *info, bool rebuilds)
{
  if (altered->s->fields != info->alter_info->create_list.elements)
    return false; /* columns that the server keeps to itself */
  restore_record(altered, s->default_values);
  numbers_= false;
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
    if (!field->stored_in_db() || (rebuilds && field->vcol_info))
      continue; /* computed of each row */
    if (field->flags & AUTO_INCREMENT_FLAG)
    {
      if (!rebuilds || altered->s->next_number_keypart)
        return false; /* a counter within groups of a key is the server's */
      numbers_= true;
      continue;
    }
    if (field->vcol_info || (field->type() == MYSQL_TYPE_GEOMETRY && !rebuilds) || !is_one_value(field->default_value))
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
      if (same_name(pair.new_key->name, key.name))
        name= &pair.old_key->name;
    uint from= 0;
    while (from < table->s->keys && !same_name(table->key_info[from].name, *name))
      from++;
    if (from == table->s->keys)
      return false;
    indexes_.push_back((int32_t) from);
  }
  return true;
}

/* The hidden column of a unique key of any length is the one that the key had: the server makes it anew for each definition. */
void Alteration::find_hashes(const TABLE *table, const TABLE *altered)
{
  for (uint i= 0; i < altered->s->keys; i++)
  {
    if (indexes_[i] < 0 || altered->key_info[i].algorithm != HA_KEY_ALG_LONG_HASH)
      continue;
    const uint to= altered->key_info[i].key_part->fieldnr - 1, from= table->key_info[indexes_[i]].key_part->fieldnr - 1;
    if ((altered->field[to]->flags & table->field[from]->flags) & LONG_UNIQUE_HASH_FIELD)
      columns_[to]= (int32_t) from;
  }
}

/* Which foreign keys come and go. False if the server is to say why that cannot be. */
bool Alteration::find_keys(THD *thd, const TABLE *table, const Alter_inplace_info *info)
{
  keys_= ForeignKeys();
  dropped_.clear();
  if (!(info->handler_flags & (ALTER_ADD_FOREIGN_KEY | ALTER_DROP_FOREIGN_KEY)))
    return true;
  for (const Alter_drop &drop : info->alter_info->drop_list)
    if (drop.type == Alter_drop::FOREIGN_KEY)
      dropped_.push_back(dropped_name(drop));
  Dummy_error_handler quiet;
  thd->push_internal_handler(&quiet);
  int error= keys_.collect_added(thd, table, info->alter_info);
  thd->pop_internal_handler();
  return !error;
}

/* Do records of both tables lie in the same way, and have the same columns? */
static bool same_records(const TABLE *table, const TABLE *altered)
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

/* Has one of the indexes that come this column? */
bool Alteration::is_of_new_index(const Field *field, const TABLE *altered) const
{
  for (uint i= 0; i < altered->s->keys; i++)
  {
    const KEY &key= altered->key_info[i];
    for (uint p= 0; indexes_[i] < 0 && p < key.user_defined_key_parts; p++)
      if (altered->field[key.key_part[p].fieldnr - 1] == field)
        return true;
  }
  return false;
}

/* Do the indexes that come have virtual columns? */
bool Alteration::has_virtual_index(const TABLE *altered) const
{
  for (Field **field= altered->field; *field; field++)
    if (!(*field)->stored_in_db() && is_of_new_index(*field, altered))
      return true;
  return false;
}

/* Columns whose values are others than before, though their records may lie in the same way, or are computed in another way. */
static constexpr alter_table_operations CHANGES_VALUES= ALTER_ADD_STORED_GENERATED_COLUMN | ALTER_STORED_GCOL_EXPR |
                                                        ALTER_VIRTUAL_GCOL_EXPR | ALTER_STORED_COLUMN_TYPE |
                                                        ALTER_COLUMN_TYPE_CHANGE_BY_ENGINE | ALTER_COLUMN_NOT_NULLABLE;

bool Alteration::describe(THD *thd, TABLE *table, TABLE *altered, const Alter_inplace_info *info, bool rebuilds)
{
  columns_.clear();
  indexes_.clear();
  if (!find_columns(altered, info, rebuilds) || !find_indexes(table, altered, info) || !find_keys(thd, table, info) ||
      definition_.describe(altered, false, info->create_info->option_struct))
    return false;
  find_hashes(table, altered);
  if (rebuilds)
    indexes_.assign(indexes_.size(), -1);
  for (uint i= 0; i < altered->s->keys; i++)
    if (indexes_[i] < 0 && altered->key_info[i].algorithm == HA_KEY_ALG_LONG_HASH)
      return false; /* nobody but the server can tell whether its values are unique */
  bool converts= table->versioned() != altered->versioned() || !same_records(table, altered) || has_virtual_index(altered) ||
                 (info->handler_flags & CHANGES_VALUES);
  for (size_t i= 0; i < columns_.size(); i++)
    converts|= columns_[i] != (int32_t) i;
  alteration_= {definition_.get(), columns_.data(), indexes_.data(), altered->record[0], ddl_.get(), rebuilds, converts,
                keys_.get(), keys_.count(), dropped_.data(), (uint32_t) dropped_.size(), 0};
  count_from(1);
  return true;
}

bool Alteration::has_new_indexes() const
{
  return rebuilds() || std::find(indexes_.begin(), indexes_.end(), -1) != indexes_.end();
}

/* ---- Conversion ---- */

Conversion::Conversion(THD *thd, TABLE *from, TABLE *to, const Alter_inplace_info *info, const Alteration &alteration,
                       ulonglong *counter)
    : thd_(thd), from_(from), to_(to), counter_(alteration.numbers() ? counter : nullptr), converts_(alteration.converts()),
      drops_past_(from->versioned() && !to->versioned()), aborted_(thd->abort_on_warning), checked_(thd->count_cuted_fields)
{
  if (!converts_)
    return;
  thd->count_cuted_fields= CHECK_FIELD_WARN;
  thd->abort_on_warning= thd->is_strict_mode();
  initial_.assign(to->record[0], to->record[0] + to->s->reclength);
  /* Where the rows stay, stored values do, and virtual columns that nothing is made of are not computed, nor warned of. The altered table's handler is
     not open, and one of partitions could not be told. */
  const bool stays= !alteration.rebuilds();
  bitmap_clear_all(&to->def_read_set);
  to->column_bitmaps_set_no_signal(&to->def_read_set, &to->s->all_set);
  copies_= new (thd->mem_root) Copy_field[to->s->fields];
  List_iterator_fast<Create_field> list(info->alter_info->create_list);
  for (Field **field= to->field; copies_ && *field; field++)
  {
    const Create_field *definition= list++;
    const bool is_stored= (*field)->stored_in_db();
    if ((*field)->vcol_info && !(stays && is_stored && definition->field && definition->field->stored_in_db()))
    {
      if (!stays || is_stored || to->check_constraints || alteration.is_of_new_index(*field, to))
        to->mark_virtual_column_with_deps(*field);
      continue;
    }
    if (!(*field)->vcol_info)
      bitmap_set_bit(to->read_set, (*field)->field_index);
    if (!definition->field || !is_stored)
      continue;
    copies_[count_++].set(*field, definition->field, false);
    reads_virtual_|= !definition->field->stored_in_db();
  }
  from->use_all_columns();
}

Conversion::~Conversion()
{
  thd_->abort_on_warning= aborted_;
  thd_->count_cuted_fields= checked_;
  delete[] copies_;
}

/* Gives the row the next number, as an insert would. Nobody changes rows meanwhile, so that each is met once. The versions of one row would get
   several numbers: that is refused, as by a copy. */
int Conversion::number()
{
  if (to_->versioned() && !from_->vers_end_field()->is_max())
  {
    my_error(ER_UNSUPPORTED_EXTENSION, MYF(0), from_->s->table_name.str);
    return 1;
  }
  Field *field= to_->found_next_number_field;
  const system_variables &variables= thd_->variables;
  const ulonglong value= strata_autoinc_align(*counter_, variables.auto_increment_offset, variables.auto_increment_increment);
  if (!value || value == ULONGLONG_MAX || value > field->get_max_int_value())
  {
    my_error(HA_ERR_AUTOINC_ERANGE, MYF(0), field->field_name.str, thd_->get_stmt_da()->current_row_for_warning());
    return 1;
  }
  *counter_= value + 1;
  return field->store((longlong) value, true) < 0;
}

int Conversion::convert()
{
  if (!copies_)
    return 1;
  if (reads_virtual_ && from_->update_virtual_fields(from_->file, VCOL_UPDATE_FOR_READ))
    return 1;
  memcpy(to_->record[0], initial_.data(), initial_.size());
  for (Copy_field *copy= copies_, *end= copy + count_; copy != end; copy++)
    copy->do_copy(copy);
  if (counter_ && number())
    return 1;
  if (to_->vfield && to_->update_virtual_fields(to_->file, VCOL_UPDATE_FOR_WRITE))
    return 1;
  if (to_->verify_constraints(false) != VIEW_CHECK_OK)
    return 1;
  return thd_->is_error();
}

int Conversion::make(void *self, int again)
{
  Conversion *c= static_cast<Conversion *>(self);
  if (c->drops_past_ && !c->from_->vers_end_field()->is_max())
    return STRATA_ROW_GOES;
  if (!again)
  {
    int failed= c->convert();
    c->thd_->get_stmt_da()->inc_current_row_for_warning();
    return failed;
  }
  if (c->counter_)
  {
    my_error(ER_INTERNAL_ERROR, MYF(0), "a row has changed while the table was being numbered");
    return 1;
  }
  /* What there is to say of the row was said. */
  Dummy_error_handler quiet;
  c->thd_->push_internal_handler(&quiet);
  int failed= c->convert();
  c->thd_->pop_internal_handler();
  return failed;
}

void Conversion::tell(void *self, const char *step, uint64_t done, uint64_t of)
{
  static_cast<Conversion *>(self)->telling_->tell(step, done, of);
}

StrataRows Conversion::rows(Telling *telling)
{
  telling_= telling;
  if (!converts_)
    return {to_->record[0], to_->record[0], nullptr, tell, this};
  return {from_->record[0], to_->record[0], make, tell, this};
}

} // namespace strata
