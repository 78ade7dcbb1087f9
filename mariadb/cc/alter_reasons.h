/* Copyright (C) 2026 the Strata authors. SPDX-License-Identifier: GPL-2.0-only */

/* Why an ALTER TABLE does not do with less. */
#ifndef STRATA_ALTER_REASONS_H
#define STRATA_ALTER_REASONS_H

#include "compat.h"

namespace strata {

/* The server's word for it; null if it has none. */
const char *why_not_instant(const Alter_inplace_info *info);
const char *why_copied(THD *thd, const TABLE *table, const TABLE *altered, const Alter_inplace_info *info);

} // namespace strata

#endif
