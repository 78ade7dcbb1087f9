/* Copyright (C) 2026 the Strata authors. SPDX-License-Identifier: GPL-2.0-only */

/* Tables of information_schema: each a plugin of its own, whose rows come ready from the row layer. */
#ifndef STRATA_SCHEMA_TABLES_H
#define STRATA_SCHEMA_TABLES_H

#include "compat.h"

namespace strata {
extern const st_maria_plugin schema_locks, schema_lock_waits, schema_transactions, schema_metrics,
    schema_foreign_keys, schema_storage[5];
}

#endif
