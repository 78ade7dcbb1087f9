/* Copyright (C) 2026 the Strata authors. SPDX-License-Identifier: GPL-2.0-only */

/* Definitions of foreign keys: from the server's parser to the row layer, and back as text and as lists.

   The server gives the clauses of CREATE TABLE and ALTER TABLE as objects among the keys of the new table. An ALTER TABLE that
   copies gives all keys that the table is to have; those that it had before are marked as old. Tables are named by their paths
   here, as in the catalog. */

#include "foreign.h"
#include "errors.h"
#include "sql_alter.h"
#include "sql_show.h"
#include <algorithm>

/* Of the server, whose header for them is not one for engines. */
TABLE_SHARE *tdc_acquire_share(THD *thd, TABLE_LIST *list, uint flags, TABLE **table);
void tdc_release_share(TABLE_SHARE *share);

namespace strata {
namespace {

std::string path_of(const char *db, const char *table)
{
  char path[FN_REFLEN + 1];
  build_table_filename(path, sizeof path - 1, db, table, "", 0);
  return path;
}

const char UNKNOWN_VERSIONS[]= "FOREIGN KEY with SYSTEM VERSIONING by an earlier version of STRATA: ALTER TABLE ... FORCE comes first";

bool is_passive(const char *path)
{
  const char *last= strrchr(path, '/');
  return last && !strncmp(last + 1, "#sql", 4);
}

/* SET DEFAULT is RESTRICT, as with InnoDB, which accepts it and shows no action either. */
uint8_t action_of(enum_fk_option option)
{
  switch (option)
  {
  case FK_OPTION_CASCADE: return STRATA_CASCADE;
  case FK_OPTION_SET_NULL: return STRATA_SET_NULL;
  case FK_OPTION_NO_ACTION: return STRATA_NO_ACTION;
  default: return STRATA_RESTRICT;
  }
}

enum_fk_option option_of(uint8_t action)
{
  switch (action)
  {
  case STRATA_CASCADE: return FK_OPTION_CASCADE;
  case STRATA_SET_NULL: return FK_OPTION_SET_NULL;
  case STRATA_NO_ACTION: return FK_OPTION_NO_ACTION;
  default: return FK_OPTION_RESTRICT;
  }
}

void append_names(THD *thd, String *out, const char *const *names, uint32_t count)
{
  out->append('(');
  for (uint32_t i= 0; i < count; i++)
  {
    if (i)
      out->append(STRING_WITH_LEN(", "));
    append_identifier(thd, out, names[i], strlen(names[i]));
  }
  out->append(')');
}

void append_action(String *out, const char *event, uint8_t action)
{
  if (action == STRATA_RESTRICT)
    return;
  out->append(STRING_WITH_LEN(" ON "));
  out->append(event, strlen(event));
  const LEX_CSTRING *words= fk_option_name(option_of(action));
  out->append(' ');
  out->append(words->str, words->length);
}

/* Has the table system versions? False if there is no such table. */
bool is_versioned(THD *thd, const char *db, const char *table)
{
  LEX_CSTRING db_name= {db, strlen(db)}, table_name= {table, strlen(table)};
  TABLE_LIST list;
  list.init_one_table(&db_name, &table_name, nullptr, TL_READ);
  Dummy_error_handler missing;
  thd->push_internal_handler(&missing);
  TABLE_SHARE *share= tdc_acquire_share(thd, &list, GTS_TABLE, nullptr);
  thd->pop_internal_handler();
  if (!share)
    return false;
  bool versioned= share->versioned;
  tdc_release_share(share);
  return versioned;
}

std::string quoted(THD *thd, const LEX_CSTRING &db, const LEX_CSTRING &table)
{
  String text;
  append_identifier(thd, &text, &db);
  text.append('.');
  append_identifier(thd, &text, &table);
  return std::string(text.ptr(), text.length());
}

/* The name of a key as InnoDB's messages have it, behind that of the database. */
std::string in_database(THD *thd, const char *name)
{
  const LEX_CSTRING &db= thd->lex->query_tables->db;
  return std::string(db.str, db.length) + "/" + name;
}

} // namespace

void statement_time(const void *thd, uint8_t *out)
{
  THD *running= static_cast<THD *>(const_cast<void *>(thd));
  store_time(running->query_start(), running->query_start_sec_part(), out);
}

size_t sql_identifier(const char *part, char *out, size_t cap)
{
  /* A table that the server is making has no name in SQL. */
  if (!strncmp(part, "#sql", 4))
    return strmake(out, part, cap - 1) - out;
  /* Of a partition's name the server knows the beginning only; what follows is the same in SQL. */
  return filename_to_tablename(part, out, cap, true);
}

void split_path(const char *path, std::string *db, std::string *table)
{
  char text[NAME_LEN + 1];
  const char *last= strrchr(path, '/');
  const char *first= last;
  while (first > path && first[-1] != '/')
    first--;
  std::string part(first, last ? last - first : 0);
  db->assign(text, sql_identifier(part.c_str(), text, sizeof text));
  table->assign(text, sql_identifier(last ? last + 1 : path, text, sizeof text));
}

Ddl::Ddl(THD *thd) : ddl_()
{
  if (!thd) /* the server repairs what a crash has interrupted */
    return;
  ddl_.checks= !thd_test_options(thd, OPTION_NO_FOREIGN_KEY_CHECKS);
  ddl_.wait_us= lock_wait_us(thd);
  /* The temporary tables of a session that ends are dropped without a statement. What thd->lex has is of its last one, and its lists are
     in memory that has been given back. */
  if (!thd->query())
    return;
  ddl_.drops_database= thd_sql_command(thd) == SQLCOM_DROP_DB;
  /* InnoDB asks a strict session only, and none that adds a key in place. */
  ddl_.strict= thd->is_strict_mode() && (ddl_.checks || thd_sql_command(thd) != SQLCOM_ALTER_TABLE);
  const TABLE_LIST *first= thd->lex->query_tables;
  switch (thd_sql_command(thd))
  {
  case SQLCOM_ALTER_TABLE:
  case SQLCOM_CREATE_INDEX:
  case SQLCOM_DROP_INDEX:
  case SQLCOM_OPTIMIZE:
  case SQLCOM_REPAIR:
    if (!first)
      return;
    altered_= path_of(first->db.str, first->table_name.str);
    ddl_.altered= altered_.c_str();
    break;
  default: break;
  }
}

int ForeignKeys::collect(THD *thd, const char *name, const TABLE_SHARE *share, HA_CREATE_INFO *create_info)
{
  Alter_info *alter_info= create_alter_info(create_info);
  if (!alter_info)
    return 0;
  alters_= is_passive(name) && !create_info->tmp_table();
  checks_= !thd_test_options(thd, OPTION_NO_FOREIGN_KEY_CHECKS);
  const TABLE_LIST *first= thd->lex->query_tables;
  table_= alters_ && first ? quoted(thd, first->db, first->table_name) : quoted(thd, share->db, share->table_name);
  const std::string path= alters_ && first ? path_of(first->db.str, first->table_name.str) : std::string(name);
  /* CREATE TABLE ... LIKE lists the keys of the other table, which stay with that. */
  return add_clauses(thd, path, share, alter_info, alters_);
}

int ForeignKeys::collect_added(THD *thd, const TABLE *table, Alter_info *alter_info)
{
  alters_= true;
  checks_= !thd_test_options(thd, OPTION_NO_FOREIGN_KEY_CHECKS);
  table_= quoted(thd, table->s->db, table->s->table_name);
  const std::string path= path_of(table->s->db.str, table->s->table_name.str);
  if (int error= add_clauses(thd, path, table->s, alter_info, false))
    return error;
  return count() && table->versioned() && !strata_knows_versions(store, path.c_str()) ? unsupported_option(UNKNOWN_VERSIONS) : 0;
}

/* `path`: of the table as it is to be. */
int ForeignKeys::add_clauses(THD *thd, const std::string &path, const TABLE_SHARE *share, Alter_info *alter_info, bool with_old)
{
  List_iterator_fast<Key> list(alter_info->key_list);
  while (Key *key= list++)
  {
    if (key->type != Key::FOREIGN_KEY)
      continue;
    const Foreign_key *clause= static_cast<Foreign_key *>(key);
    if (key->old && clause->constraint_name.str)
      own_.emplace_back(clause->constraint_name.str, clause->constraint_name.length);
    if (key->old && !with_old)
      continue;
    LEX_CSTRING db= clause->ref_db.str ? clause->ref_db : share->db;
    char lower_db[SAFE_NAME_LEN + 1], lower_table[SAFE_NAME_LEN + 1];
    const char *parent_db= db.str, *parent_table= clause->ref_table.str;
    if (lower_case_table_names)
    {
      lower_name(lower_db, parent_db);
      lower_name(lower_table, parent_table);
      parent_db= lower_db;
      parent_table= lower_table;
    }
    names_.emplace_back();
    Names &names= names_.back();
    /* A name after FOREIGN KEY is the index's, and the key's too if nothing else names it: the parser gives both. */
    if (clause->constraint_name.str)
      names.name.assign(clause->constraint_name.str, clause->constraint_name.length);
    names.parent= path_of(parent_db, parent_table);
    List_iterator_fast<Key_part_spec> columns(const_cast<List<Key_part_spec> &>(clause->columns));
    while (Key_part_spec *part= columns++)
      names.columns.push_back(part->field_name.str);
    List_iterator_fast<Key_part_spec> parent_columns(const_cast<List<Key_part_spec> &>(clause->ref_columns));
    while (Key_part_spec *part= parent_columns++)
      names.parent_columns.push_back(part->field_name.str);
    if (names.columns.size() != names.parent_columns.size())
    {
      my_error(ER_WRONG_FK_DEF, MYF(0), names.name.c_str(), ER_THD(thd, ER_KEY_REF_DO_NOT_MATCH_TABLE_REF));
      return HA_ERR_CANNOT_ADD_FOREIGN;
    }
    /* The table itself is known as it is to be. */
    if (!clause->old && names.parent != path && is_versioned(thd, parent_db, parent_table) &&
        !strata_knows_versions(store, names.parent.c_str()))
      return unsupported_option(UNKNOWN_VERSIONS);
    StrataForeignKey told= {};
    told.name= names.name.c_str();
    told.parent= names.parent.c_str();
    told.column_count= (uint32_t) names.columns.size();
    told.columns= names.columns.data();
    told.parent_columns= names.parent_columns.data();
    told.on_delete= action_of(clause->delete_opt);
    told.on_update= action_of(clause->update_opt);
    told.inherited= clause->old;
    keys_.push_back(told);
  }
  return 0;
}

bool ForeignKeys::has_column(const LEX_CSTRING &name) const
{
  for (const StrataForeignKey &key : keys_)
    for (uint32_t i= 0; i < key.column_count; i++)
      if (same_name(key.columns[i], name.str))
        return true;
  return false;
}

bool ForeignKeys::lock_tables(THD *thd) const
{
  for (const StrataForeignKey &key : keys_)
  {
    std::string db, parent;
    split_path(key.parent, &db, &parent);
    MDL_request request;
    MDL_REQUEST_INIT(&request, MDL_key::TABLE, db.c_str(), parent.c_str(), MDL_SHARED, MDL_TRANSACTION);
    if (thd->mdl_context.acquire_lock(&request, (double) thd->variables.lock_wait_timeout))
      return true;
  }
  return false;
}

bool ForeignKeys::has_words_in_place(THD *thd, int result) const
{
  if (!is_in_place(thd))
    return false;
  switch (result)
  {
  case STRATA_NO_FOREIGN_KEY: return true;
  case STRATA_FOREIGN_UNFIT_PARENT:
  case STRATA_FOREIGN_NO_NULL:
  case STRATA_FOREIGN_NAME_TAKEN: return !checks_; /* InnoDB copies otherwise */
  default: return false;
  }
}

/* Would InnoDB do in place what is done by a copy here? It has errors of its own then. */
bool ForeignKeys::is_in_place(THD *thd) const
{
  const Alter_info &alter= thd->lex->alter_info;
  return alters_ && alter.algorithm(thd) != Alter_info::ALTER_TABLE_ALGORITHM_COPY;
}

/* 0: the error is that of a copy. `quoted` is the key's name, or its columns in parentheses. */
int ForeignKeys::tell_in_place(THD *thd, const char *quoted, int result) const
{
  if (!is_in_place(thd))
    return 0;
  const size_t length= strlen(quoted);
  const std::string name= *quoted == '`' ? std::string(quoted + 1, length - 2) : std::string();
  const auto found= std::find_if(keys_.begin(), keys_.end(), [&name](const StrataForeignKey &key) { return name == key.name; });
  std::string db, parent;
  if (found != keys_.end())
    split_path(found->parent, &db, &parent);
  if (found != keys_.end() && found->inherited)
  {
    /* The only reason against a key that was there is SET NULL where a column takes none now. */
    std::string columns;
    for (uint32_t i= 0; i < found->column_count; i++)
      columns.append(i ? ", " : "").append(found->columns[i]);
    my_error(ER_FK_COLUMN_NOT_NULL, MYF(0), columns.c_str(), name.c_str());
  }
  else if (checks_) /* InnoDB copies: it checks the rows that are there */
    return 0;
  else if (result == STRATA_FOREIGN_UNFIT_PARENT)
    my_error(ER_FK_NO_INDEX_PARENT, MYF(0), name.c_str(), parent.c_str());
  else
    my_error(ER_FK_INCORRECT_OPTION, MYF(0), thd->lex->query_tables->table_name.str, in_database(thd, name.c_str()).c_str());
  return HA_ERR_ABORTED_BY_USER;
}

int ForeignKeys::tell_failure(THD *thd, int result, int error) const
{
  char name[1024];
  switch (result)
  {
  case STRATA_INDEX_OF_FOREIGN:
    strata_failed_name(0, name, sizeof name);
    my_error(ER_DROP_INDEX_FK, MYF(0), name);
    return HA_ERR_ABORTED_BY_USER; /* of which the server says nothing more */
  case STRATA_NO_FOREIGN_KEY:
    strata_failed_name(0, name, sizeof name);
    my_error(ER_CANT_DROP_FIELD_OR_KEY, MYF(0), "FOREIGN KEY", name);
    return HA_ERR_ABORTED_BY_USER;
  case STRATA_CANNOT_ADD_FOREIGN:
  case STRATA_FOREIGN_UNFIT_PARENT:
  case STRATA_FOREIGN_NO_NULL:
  {
    String why;
    if (error_message(&why))
      return HA_ERR_OUT_OF_MEM;
    strata_failed_name(0, name, sizeof name);
    if (result != STRATA_CANNOT_ADD_FOREIGN)
      if (int told= tell_in_place(thd, name, result))
        return told;
    push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, HA_ERR_CANNOT_ADD_FOREIGN,
                        "%s table %s with foreign key %s constraint failed. %s", alters_ ? "Alter" : "Create",
                        table_.c_str(), name, why.c_ptr_safe());
    return error;
  }
  case STRATA_FOREIGN_NAME_TAKEN:
    strata_failed_name(0, name, sizeof name);
    if (is_in_place(thd) && !checks_)
    {
      /* The table's own names InnoDB compares by their letters, others when it has all but ended. */
      if (std::find(own_.begin(), own_.end(), name) != own_.end())
        my_error(ER_DUP_CONSTRAINT_NAME, MYF(0), "FOREIGN KEY", in_database(thd, name).c_str());
      else
        my_error(ER_FK_FAIL_ADD_SYSTEM, MYF(0), in_database(thd, name).c_str());
      return HA_ERR_ABORTED_BY_USER;
    }
    push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, HA_ERR_FOUND_DUPP_KEY,
                        "%s table %s failed: the database has a foreign key `%s` already.", alters_ ? "Alter" : "Create",
                        table_.c_str(), name);
    return error;
  default: return error;
  }
}

int lock_parent(THD *thd, const char *name)
{
  if (!thd || !store || !strata_is_parent(store, name))
    return 0;
  StrataSession *session;
  bool no_wait;
  if (int error= begin_statement(thd, &session, &no_wait))
    return error;
  return handler_error(strata_session_lock_name(session, name), thd);
}

void append_foreign_key(THD *thd, String *out, const StrataReference &key)
{
  out->append(STRING_WITH_LEN("CONSTRAINT "));
  append_identifier(thd, out, key.name, strlen(key.name));
  out->append(STRING_WITH_LEN(" FOREIGN KEY "));
  append_names(thd, out, key.columns, key.column_count);
  out->append(STRING_WITH_LEN(" REFERENCES "));
  std::string db, child, parent_db, parent;
  split_path(key.child, &db, &child);
  split_path(key.parent, &parent_db, &parent);
  if (db != parent_db)
  {
    append_identifier(thd, out, parent_db.data(), parent_db.size());
    out->append('.');
  }
  append_identifier(thd, out, parent.data(), parent.size());
  out->append(' ');
  append_names(thd, out, key.parent_columns, key.column_count);
  append_action(out, "DELETE", key.on_delete);
  append_action(out, "UPDATE", key.on_update);
}

bool append_failed_reference(THD *thd, String *out)
{
  struct Target
  {
    THD *thd;
    String *out;
  } target= {thd, out};
  auto append= [](void *to, const StrataReference *key) {
    const Target *target= static_cast<const Target *>(to);
    std::string db, child;
    split_path(key->child, &db, &child);
    append_identifier(target->thd, target->out, db.data(), db.size());
    target->out->append('.');
    append_identifier(target->thd, target->out, child.data(), child.size());
    target->out->append(STRING_WITH_LEN(", "));
    append_foreign_key(target->thd, target->out, *key);
  };
  return strata_failed_reference(store, append, &target) == STRATA_OK;
}

FOREIGN_KEY_INFO *foreign_key_info(THD *thd, const StrataReference &key)
{
  void *place= thd_alloc(thd, sizeof(FOREIGN_KEY_INFO));
  if (!place)
    return nullptr;
  FOREIGN_KEY_INFO *info= new (place) FOREIGN_KEY_INFO();
  auto text= [thd](const char *str, size_t length) {
    return const_cast<LEX_CSTRING *>(thd_make_lex_string(thd, nullptr, str, length, 1));
  };
  std::string db, child, parent_db, parent;
  split_path(key.child, &db, &child);
  split_path(key.parent, &parent_db, &parent);
  info->foreign_id= text(key.name, strlen(key.name));
  info->foreign_db= text(db.data(), db.size());
  info->foreign_table= text(child.data(), child.size());
  info->referenced_db= text(parent_db.data(), parent_db.size());
  info->referenced_table= text(parent.data(), parent.size());
  info->update_method= option_of(key.on_update);
  info->delete_method= option_of(key.on_delete);
  info->referenced_key_name= key.parent_index ? text(key.parent_index, strlen(key.parent_index)) : nullptr;
  for (uint32_t i= 0; i < key.column_count; i++)
  {
    info->foreign_fields.push_back(text(key.columns[i], strlen(key.columns[i])), thd->mem_root);
    info->referenced_fields.push_back(text(key.parent_columns[i], strlen(key.parent_columns[i])), thd->mem_root);
    if (key.nullable[i])
      info->set_nullable(thd, false, i, key.column_count);
    if (key.nullable[key.column_count + i])
      info->set_nullable(thd, true, i, key.column_count);
  }
  return info;
}

} // namespace strata
