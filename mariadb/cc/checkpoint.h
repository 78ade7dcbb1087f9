/* Copyright (C) 2026 the Strata authors. SPDX-License-Identifier: GPL-2.0-only */

/* Checkpoints of the database, and the part that the engine takes in a backup of the server. */
#ifndef STRATA_CHECKPOINT_H
#define STRATA_CHECKPOINT_H

#include "compat.h"

namespace strata {

extern st_mysql_sys_var *const checkpoint_variables[3];

/* BACKUP STAGE START. */
void backup_begins();
/* FLUSH ENGINE LOGS. True if it fails, with the reason pushed. */
bool backup_flushes(THD *thd);
/* A connection ends. */
void backup_connection_ends(THD *thd);
/* The store is about to close. */
void backup_store_ends();

} // namespace strata

#endif
