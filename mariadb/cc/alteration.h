/* Copyright (C) 2026 the Strata authors. SPDX-License-Identifier: GPL-2.0-only */

/* What ALTER TABLE asks for, between the server's structures and the row layer's. */
#ifndef STRATA_ALTERATION_H
#define STRATA_ALTERATION_H

#include "foreign.h"
#include "glue.h"

namespace strata {

/* Points into the TABLEs and into itself. */
class Alteration
{
public:
  explicit Alteration(THD *thd) : ddl_(thd) {}
  /* False if the row layer has no word for what is asked. Puts the values of new columns into the altered table's record. */
  bool describe(TABLE *table, TABLE *altered, const Alter_inplace_info *info);
  const StrataAlteration *get() const { return &alteration_; }
  bool has_new_indexes() const;
  /* Do records of both tables lie in the same way, and have the same columns? */
  static bool same_records(const TABLE *table, const TABLE *altered);

private:
  bool find_columns(TABLE *altered, const Alter_inplace_info *info);
  bool find_indexes(const TABLE *table, const TABLE *altered, const Alter_inplace_info *info);

  Ddl ddl_;
  Definition definition_;
  std::vector<int32_t> columns_, indexes_;
  StrataAlteration alteration_= {};
};

/* The handler's part of an ALTER TABLE that is under way: of one table or partition. */
class Altered : public inplace_alter_handler_ctx
{
public:
  explicit Altered(StrataTable *table) : table(table) {}
  ~Altered() override { strata_build_free(build); }
  StrataTable *table;
  StrataBuild *build= nullptr; /* of its new indexes, if it gets any */
};

} // namespace strata

#endif
