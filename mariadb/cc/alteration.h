/* Copyright (C) 2026 the Strata authors. SPDX-License-Identifier: GPL-2.0-only */

/* What ALTER TABLE asks for, between the server's structures and the row layer's. */
#ifndef STRATA_ALTERATION_H
#define STRATA_ALTERATION_H

#include "foreign.h"
#include "glue.h"
#include "instruments.h"

namespace strata {

/* Points into the TABLEs and into itself. */
class Alteration
{
public:
  explicit Alteration(THD *thd) : ddl_(thd) {}
  /* False if the row layer has no word for what is asked, with or without writing the rows anew. Puts the values of new columns into
     the altered table's record. */
  bool describe(THD *thd, TABLE *table, TABLE *altered, const Alter_inplace_info *info, bool rebuilds);
  const StrataAlteration *get() const { return &alteration_; }
  bool has_new_indexes() const;
  bool rebuilds() const { return alteration_.rebuilds; }
  bool converts() const { return alteration_.converts; }
  bool is_of_new_index(const Field *field, const TABLE *altered) const;
  /* Does a new AUTO_INCREMENT column number the rows? */
  bool numbers() const { return numbers_; }
  /* It goes on here. */
  void count_from(ulonglong next) { alteration_.counter= numbers_ ? next : 0; }
  /* Foreign keys that come. */
  const ForeignKeys &keys() const { return keys_; }
  /* What the row layer has said to the last trial, if it has refused that for a foreign key and the handler is to tell: see
     ForeignKeys::tell_failure(). */
  int refusal= STRATA_OK;

private:
  bool find_columns(TABLE *altered, const Alter_inplace_info *info, bool rebuilds);
  bool has_virtual_index(const TABLE *altered) const;
  bool find_indexes(const TABLE *table, const TABLE *altered, const Alter_inplace_info *info);
  bool find_keys(THD *thd, const TABLE *table, const Alter_inplace_info *info);
  void find_hashes(const TABLE *table, const TABLE *altered);

  Ddl ddl_;
  Definition definition_;
  std::vector<int32_t> columns_, indexes_;
  ForeignKeys keys_;
  std::vector<const char *> dropped_;
  StrataAlteration alteration_= {};
  bool numbers_= false;
};

/* The handler's part of an ALTER TABLE that is under way: of one table or partition. */
class Altered : public inplace_alter_handler_ctx
{
public:
  explicit Altered(StrataTable *table) : table(table) {}
  ~Altered() override { strata_build_free(build); }
  StrataTable *table;
  StrataBuild *build= nullptr; /* of its new indexes, if it gets any */
  bool rebuilds= false;
};

/* Makes records of the altered table of those of the table, as a copy by the server does. While it lives, what does not fit is an error
   in strict mode and else a warning, with the number of the row. Rows that get numbers are numbered from *counter on. A table that loses its
   versions loses the rows of the past. */
class Conversion
{
public:
  Conversion(THD *thd, TABLE *from, TABLE *to, const Alter_inplace_info *info, const Alteration &alteration, ulonglong *counter);
  ~Conversion();
  StrataRows rows(Telling *telling);

private:
  static int make(void *self, int again);
  int convert();
  int number();
  static void tell(void *self, const char *step, uint64_t done, uint64_t of);

  THD *thd_;
  TABLE *from_, *to_;
  Telling *telling_= nullptr;
  ulonglong *counter_; /* null: rows are not numbered */
  bool converts_, drops_past_, aborted_;
  bool reads_virtual_= false; /* a virtual column becomes one that is stored */
  enum_check_fields checked_;
  std::vector<uchar> initial_; /* the altered table's record with the values of new columns */
  Copy_field *copies_= nullptr;
  uint count_= 0;
};

} // namespace strata

#endif
