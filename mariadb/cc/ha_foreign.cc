/* Copyright (C) 2026 the Strata authors. SPDX-License-Identifier: GPL-2.0-only */

/* The handler's answers about the foreign keys of its table. */

#include "errors.h"
#include "foreign.h"
#include "ha_strata.h"

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
