/* Copyright (C) 2026 the Strata authors. SPDX-License-Identifier: GPL-2.0-only */

/* The handler's answers about the foreign keys of its table. */

#include "alter_values.h"
#include "errors.h"
#include "foreign.h"
#include "ha_strata.h"
#include "sql_alter.h"
#include "sql_class.h"

/* Of the server, without a declaration in its headers. */
TABLE *find_fk_open_table(THD *thd, const char *db, size_t db_len, const char *table, size_t table_len);

namespace {

struct Listing
{
  THD *thd;
  List<FOREIGN_KEY_INFO> *list;
  bool failed;
};

void add_to_list(void *to, const StrataReference *key)
{
  Listing *listing= static_cast<Listing *>(to);
  FOREIGN_KEY_INFO *info= strata::foreign_key_info(listing->thd, *key);
  listing->failed|= !info || listing->list->push_back(info, listing->thd->mem_root);
}

int list_keys(THD *thd, StrataTable *table, bool as_parent, List<FOREIGN_KEY_INFO> *list)
{
  Listing listing= {thd, list, false};
  int result= strata_table_references(table, as_parent, add_to_list, &listing);
  return listing.failed ? HA_ERR_OUT_OF_MEM : strata::handler_error(result, thd);
}

/* Statements that change a parent open the tables whose rows may change with it. */
ha_strata *open_child(const void *thd, const char *name)
{
  std::string db, child;
  strata::split_path(name, &db, &child);
  TABLE *table= find_fk_open_table(static_cast<THD *>(const_cast<void *>(thd)), db.data(), db.size(), child.data(), child.size());
  return table && table->file->ht == strata::engine ? static_cast<ha_strata *>(table->file) : nullptr;
}

} // namespace

const StrataTable *ha_strata::child_table(const void *thd, const char *name)
{
  const ha_strata *child= open_child(thd, name);
  return child ? child->table_ : nullptr;
}

int ha_strata::compute_child(const void *thd, const char *name, uchar *record, int is_new)
{
  ha_strata *child= open_child(thd, name);
  return child ? child->compute_record(record, is_new) : HA_ERR_NO_SUCH_TABLE;
}

int ha_strata::get_foreign_key_list(THD *thd, List<FOREIGN_KEY_INFO> *list)
{
  return is_related() ? list_keys(thd, table_, false, list) : 0;
}

int ha_strata::get_parent_foreign_key_list(THD *thd, List<FOREIGN_KEY_INFO> *list)
{
  return is_related() ? list_keys(thd, table_, true, list) : 0;
}

bool ha_strata::referenced_by_foreign_key() const noexcept
{
  return is_related() && strata_table_relation(table_, STRATA_IS_PARENT);
}

bool ha_strata::can_switch_engines() { return !is_related(); }

/* The server asks for the table as a whole only. An index that a key needs is guarded when the table is made without it. */
bool ha_strata::is_fk_defined_on_table_or_index(uint) { return is_related(); }

char *ha_strata::get_foreign_key_create_info()
{
  if (!is_related())
    return nullptr;
  struct Target
  {
    THD *thd;
    String text;
  } target= {ha_thd(), String()};
  auto append= [](void *to, const StrataReference *key) {
    Target *target= static_cast<Target *>(to);
    target->text.append(STRING_WITH_LEN(",\n  "));
    strata::append_foreign_key(target->thd, &target->text, *key);
  };
  if (strata_table_references(table_, false, append, &target) != STRATA_OK || !target.text.length())
    return nullptr;
  return my_strndup(PSI_NOT_INSTRUMENTED, target.text.ptr(), target.text.length(), MYF(MY_WME));
}

void ha_strata::free_foreign_key_create_info(char *text) { my_free(text); }

bool ha_strata::get_foreign_dup_key(char *child, uint child_length, char *key, uint key_length)
{
  char path[FN_REFLEN + 1];
  if (!strata_failed_name(0, path, sizeof path))
    return false;
  const char *last= strrchr(path, '/');
  strata::sql_identifier(last ? last + 1 : path, child, child_length);
  strata_failed_name(1, key, key_length);
  return true;
}

/* ---- ALTER TABLE in place ---- */

namespace {

/* What may make a foreign key impossible: the server's checks belong to the copy. Names are followed. */
constexpr alter_table_operations CONCERNS_KEYS=
    ALTER_COLUMN_NOT_NULLABLE | ALTER_STORED_COLUMN_TYPE | ALTER_STORED_GCOL_EXPR | ALTER_ADD_STORED_GENERATED_COLUMN |
    ALTER_DROP_STORED_COLUMN | ALTER_COLUMN_NULLABLE | ALTER_COLUMN_TYPE_CHANGE_BY_ENGINE | ALTER_VIRTUAL_GCOL_EXPR |
    ALTER_VIRTUAL_COLUMN_TYPE | ALTER_COLUMN_VCOL;

bool is_named(const LEX_CSTRING &name, const Field &field)
{
  return strata::same_name(name, field.field_name);
}

/* Does the statement drop the key, which is one of the table's own? */
bool goes(const FOREIGN_KEY_INFO *key, const Alter_inplace_info *info)
{
  for (const Alter_drop &drop : info->alter_info->drop_list)
    if (drop.type == Alter_drop::FOREIGN_KEY && strata::same_name(strata::dropped_name(drop), key->foreign_id->str))
      return true;
  return false;
}

bool has(List<LEX_CSTRING> &columns, const Field &field)
{
  List_iterator_fast<LEX_CSTRING> names(columns);
  while (const LEX_CSTRING *name= names++)
    if (is_named(*name, field))
      return true;
  return false;
}

/* Does the key bring what becomes of a column of the parent to the child, where only one of both takes NULL? `of_parent`: the field is the
   parent's. */
bool copies_null(FOREIGN_KEY_INFO *key, const Field &field, bool of_parent)
{
  /* InnoDB accepts it with any action ON DELETE. */
  if (key->update_method != FK_OPTION_CASCADE || key->delete_method != FK_OPTION_RESTRICT)
    return false;
  List_iterator_fast<LEX_CSTRING> names(of_parent ? key->referenced_fields : key->foreign_fields);
  for (unsigned i= 0; const LEX_CSTRING *name= names++; i++)
    if (is_named(*name, field) && key->is_nullable(!of_parent, i) == !of_parent)
      return true;
  return false;
}

bool sets_null(const FOREIGN_KEY_INFO *key)
{
  return key->delete_method == FK_OPTION_SET_NULL || key->update_method == FK_OPTION_SET_NULL;
}

} // namespace

/* The foreign keys that stay. True if they cannot be listed. */
bool ha_strata::keys_that_stay(const Alter_inplace_info *info, List<FOREIGN_KEY_INFO> *own, List<FOREIGN_KEY_INFO> *incoming)
{
  THD *thd= ha_thd();
  List<FOREIGN_KEY_INFO> all;
  if (get_foreign_key_list(thd, &all) || get_parent_foreign_key_list(thd, incoming))
    return true;
  List_iterator_fast<FOREIGN_KEY_INFO> keys(all);
  while (FOREIGN_KEY_INFO *key= keys++)
    if (!goes(key, info) && own->push_back(key, thd->mem_root))
      return true;
  List_iterator<FOREIGN_KEY_INFO> others(*incoming);
  while (const FOREIGN_KEY_INFO *key= others++)
    if (strata::same_name(*key->foreign_db, table->s->db) &&
        strata::same_name(*key->foreign_table, table->s->table_name) && goes(key, info))
      others.remove();
  return false;
}

bool ha_strata::breaks_foreign_key(const Alter_inplace_info *info)
{
  if (!is_related() || !(info->handler_flags & CONCERNS_KEYS))
    return false;
  List<FOREIGN_KEY_INFO> own, incoming;
  if (keys_that_stay(info, &own, &incoming))
    return true;
  for (Field **field= table->field; *field; field++)
  {
    const Create_field *to= strata::definition_of(*field, info);
    const bool is_same= to && (*field)->is_equal(*to) && !(*field)->vcol_info && !to->vcol_info;
    const bool loses_null= to && (*field)->maybe_null() && (to->flags & NOT_NULL_FLAG);
    if (is_same && !loses_null)
      continue;
    /* A NULL becomes another value unless it is an error. */
    const bool stays= is_same && ha_thd()->is_strict_mode();
    List_iterator_fast<FOREIGN_KEY_INFO> keys(own), others(incoming);
    while (FOREIGN_KEY_INFO *key= keys++)
      if (has(key->foreign_fields, **field) && !stays)
        return true;
    while (FOREIGN_KEY_INFO *key= others++)
      if (has(key->referenced_fields, **field) && !stays)
        return true;
  }
  return false;
}

bool ha_strata::brings_null(const Alter_inplace_info *info, bool tell)
{
  if (!is_related() || !(info->handler_flags & (ALTER_COLUMN_NOT_NULLABLE | ALTER_COLUMN_NULLABLE)))
    return false;
  List<FOREIGN_KEY_INFO> own, incoming;
  if (keys_that_stay(info, &own, &incoming))
    return false; /* which is told elsewhere */
  const bool is_strict= ha_thd()->is_strict_mode();
  for (Field **field= table->field; *field; field++)
  {
    const Create_field *to= strata::definition_of(*field, info);
    if (!to || (*field)->maybe_null() == !(to->flags & NOT_NULL_FLAG))
      continue;
    const bool loses_null= (*field)->maybe_null();
    List_iterator_fast<FOREIGN_KEY_INFO> keys(own), others(incoming);
    while (FOREIGN_KEY_INFO *key= keys++)
      if (loses_null && has(key->foreign_fields, **field) &&
          (sets_null(key) || (is_strict && copies_null(key, **field, false))))
      {
        if (tell)
          my_error(ER_FK_COLUMN_NOT_NULL, MYF(0), (*field)->field_name.str, key->foreign_id->str);
        return true;
      }
    while (FOREIGN_KEY_INFO *key= others++)
      if (!loses_null && is_strict && copies_null(key, **field, true))
      {
        const std::string child= std::string(key->foreign_db->str) + "." + key->foreign_table->str;
        if (tell)
          my_error(ER_FK_COLUMN_CANNOT_CHANGE_CHILD, MYF(0), (*field)->field_name.str, key->foreign_id->str, child.c_str());
        return true;
      }
  }
  return false;
}
