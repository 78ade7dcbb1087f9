/* Copyright (C) 2026 the Strata authors. SPDX-License-Identifier: GPL-2.0-only */

/* Which values of a row an ALTER TABLE makes others. */
#ifndef STRATA_ALTER_VALUES_H
#define STRATA_ALTER_VALUES_H

#include "compat.h"

namespace strata {

/* Can it be that the values of a column are others in the altered table? */
bool may_change(const Field *to, const Create_field &definition);
/* Are there values that are kept, in the row, in an index or by the row's partition, and computed in another way now? */
bool changes_kept(TABLE *table, TABLE *altered, const Alter_inplace_info *info);
/* What becomes of a column; null: it goes. */
const Create_field *definition_of(const Field *from, const Alter_inplace_info *info);

} // namespace strata

#endif
