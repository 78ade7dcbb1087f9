/* Copyright (C) 2026 the Strata authors. SPDX-License-Identifier: GPL-2.0-only */

/* Why the server has to copy a table, in the server's own words where it has any: those that InnoDB gives, so that who reads the error
   (1846) or looks for its text finds the same. What nobody has a word for is told without a reason (1845). */

#include "alter_reasons.h"
#include "sql_alter.h"
#include "sql_class.h"

namespace strata {

/* A new column that numbers the rows? */
static bool adds_counter(const TABLE *altered, const Alter_inplace_info *info)
{
  List_iterator_fast<Create_field> list(info->alter_info->create_list);
  while (const Create_field *definition= list++)
    if (!definition->field && (definition->flags & AUTO_INCREMENT_FLAG))
      return altered->found_next_number_field;
  return false;
}

const char *why_not_instant(const Alter_inplace_info *info)
{
  return info->handler_flags & (ALTER_ADD_NON_UNIQUE_NON_PRIM_INDEX | ALTER_ADD_UNIQUE_INDEX) ? "ADD INDEX" : nullptr;
}

const char *why_copied(THD *thd, const TABLE *table, const TABLE *altered, const Alter_inplace_info *info)
{
  const alter_table_operations asked= info->handler_flags;
  if (info->ignore)
    return my_get_err_msg(ER_ALTER_OPERATION_NOT_SUPPORTED_REASON_IGNORE);
  if (!table->versioned() && altered->versioned())
    return "Not implemented for system-versioned timestamp tables";
  if ((asked & (ALTER_STORED_COLUMN_TYPE | ALTER_COLUMN_TYPE_CHANGE_BY_ENGINE)) && !(asked & ALTER_VIRTUAL_GCOL_EXPR))
    return my_get_err_msg(ER_ALTER_OPERATION_NOT_SUPPORTED_REASON_COLUMN_TYPE);
  if ((asked & ALTER_ADD_FOREIGN_KEY) && !thd_test_options(thd, OPTION_NO_FOREIGN_KEY_CHECKS))
    return my_get_err_msg(ER_ALTER_OPERATION_NOT_SUPPORTED_REASON_FK_CHECK);
  if (adds_counter(altered, info))
    return my_get_err_msg(ER_ALTER_OPERATION_NOT_SUPPORTED_REASON_AUTOINC);
  if ((asked & (ALTER_DROP_PK_INDEX | ALTER_ADD_PK_INDEX)) == ALTER_DROP_PK_INDEX)
    return my_get_err_msg(ER_ALTER_OPERATION_NOT_SUPPORTED_REASON_NOPK);
  return nullptr;
}

} // namespace strata
