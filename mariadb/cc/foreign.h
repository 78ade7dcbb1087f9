/* Copyright (C) 2026 the Strata authors. SPDX-License-Identifier: GPL-2.0-only */

/* Foreign keys between the server's structures and the row layer's. */
#ifndef STRATA_FOREIGN_H
#define STRATA_FOREIGN_H

#include "glue.h"
#include <deque>
#include <string>

namespace strata {

/* What the running statement says of foreign keys while it changes tables. */
class Ddl
{
public:
  explicit Ddl(THD *thd);
  const StrataDdl *get() const { return &ddl_; }

private:
  StrataDdl ddl_;
  std::string altered_;
};

/* The FOREIGN KEY clauses of a statement that creates or alters a table. */
class ForeignKeys
{
public:
  /* Returns 0, or a handler error with a message pushed. */
  int collect(THD *thd, const char *name, const TABLE_SHARE *share, HA_CREATE_INFO *create_info);
  /* The same of a statement that alters a table which stays where it is. */
  int collect_added(THD *thd, const TABLE *table, Alter_info *alter_info);
  const StrataForeignKey *get() const { return keys_.data(); }
  uint32_t count() const { return (uint32_t) keys_.size(); }
  /* Has one of them this column in the child? */
  bool has_column(const LEX_CSTRING &name) const;
  /* Keeps other tables from coming into the places of the parents until the transaction ends. True: not to be had, which was told. */
  bool lock_tables(THD *thd) const;
  /* True if what was refused in this way has an error of its own where the table is altered in place. */
  bool has_words_in_place(THD *thd, int result) const;
  /* After strata_table_create() has failed: says why, if it was for a key. Returns the error for the server. */
  int tell_failure(THD *thd, int result, int error) const;

private:
  struct Names
  {
    std::string name, parent;
    std::vector<const char *> columns, parent_columns;
  };
  std::deque<Names> names_;
  std::vector<StrataForeignKey> keys_;
  std::vector<std::string> own_; /* names that the altered table has */
  int add_clauses(THD *thd, const std::string &path, const TABLE_SHARE *share, Alter_info *alter_info, bool with_old);
  bool is_in_place(THD *thd) const;
  int tell_in_place(THD *thd, const char *quoted, int result) const;

  std::string table_; /* as a message names it */
  bool alters_= false, checks_= true;
};

/* Database and table of a path, as they are written in SQL. */
void split_path(const char *path, std::string *db, std::string *table);

/* If another table, or none, is about to come under this name and foreign keys refer to it: waits for transactions that rely on the
   one that there is. Until the statement's end others wait. Returns a handler error. */
int lock_parent(THD *thd, const char *name);

/* "CONSTRAINT `c` FOREIGN KEY (`a`) REFERENCES `p` (`b`) ON DELETE CASCADE" */
void append_foreign_key(THD *thd, String *out, const StrataReference &key);
/* What the messages of errors 1451 and 1452 show in parentheses. False if the last failure was no such thing. */
bool append_failed_reference(THD *thd, String *out);
/* The same as the server's lists have it. Null: out of memory. */
FOREIGN_KEY_INFO *foreign_key_info(THD *thd, const StrataReference &key);

/* For StrataCallbacks. */
void statement_time(const void *thd, uint8_t *out);
size_t sql_identifier(const char *part, char *out, size_t cap);

} // namespace strata

#endif
