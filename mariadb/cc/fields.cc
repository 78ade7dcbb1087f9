/* Copyright (C) 2026 the Strata authors. SPDX-License-Identifier: GPL-2.0-only */

/* A TABLE as the row layer sees it: where each column lies in a record, and how its bytes sort. */

#include "errors.h"
#include "glue.h"
#include "myisampack.h"
#include "sql_sequence.h"

namespace strata {
namespace {

/* Old temporal types keep a little-endian number, or, with fractional digits, big-endian bytes. */
bool has_fraction(const Field *field) { return field->decimals() > 0; }

void integer(StrataColumn *column, const Field *field, bool is_unsigned)
{
  column->type= STRATA_INT;
  column->size= field->pack_length();
  if (is_unsigned)
    column->flags|= STRATA_COL_UNSIGNED;
}

/* Of some types zero, which the server puts under NULL, has its highest bit set. */
bool zero_is_high(Field *field)
{
  std::string saved(reinterpret_cast<char *>(field->ptr), field->pack_length());
  field->reset();
  bool high= *field->ptr == 0x80;
  memcpy(field->ptr, saved.data(), saved.size());
  return high;
}

void sortable_bytes(StrataColumn *column, Field *field)
{
  column->type= STRATA_BYTES;
  column->size= field->pack_length();
  if (field->null_ptr && column->size && zero_is_high(field))
    column->flags|= STRATA_COL_NULL_HIGH;
}

} // namespace

/* False: a type that this release does not know. */
bool Definition::describe_field(const TABLE *table, Field *field, StrataColumn *column)
{
  *column= StrataColumn();
  column->name= field->field_name.str;
  column->offset= (uint32_t) (field->ptr - table->record[0]);
  if (field->null_ptr)
  {
    column->null_offset= (uint32_t) (field->null_ptr - table->record[0]);
    column->null_mask= field->null_bit;
  }
  if (!field->stored_in_db() || (field->flags & LONG_UNIQUE_HASH_FIELD))
    column->flags|= STRATA_COL_VIRTUAL;
  if (field->vers_update_unversioned())
    column->flags|= STRATA_COL_WITHOUT_VERSIONS;

  switch (field->real_type())
  {
  case MYSQL_TYPE_TINY:
  case MYSQL_TYPE_SHORT:
  case MYSQL_TYPE_INT24:
  case MYSQL_TYPE_LONG:
  case MYSQL_TYPE_LONGLONG:
    integer(column, field, field->flags & UNSIGNED_FLAG);
    column->flags|= STRATA_COL_MOMENT;
    return true;
  case MYSQL_TYPE_YEAR:
  case MYSQL_TYPE_ENUM:
  case MYSQL_TYPE_SET:
  case MYSQL_TYPE_NEWDATE:
  case MYSQL_TYPE_DATE:
    integer(column, field, true);
    return true;
  case MYSQL_TYPE_TIME:
  case MYSQL_TYPE_TIMESTAMP:
  case MYSQL_TYPE_DATETIME:
    if (has_fraction(field))
      sortable_bytes(column, field);
    else
      integer(column, field, field->type() != MYSQL_TYPE_TIME);
    if (field->real_type() == MYSQL_TYPE_TIMESTAMP && !has_fraction(field))
      column->flags|= STRATA_COL_MOMENT;
    return true;
  case MYSQL_TYPE_FLOAT:
    column->type= STRATA_FLOAT;
    column->size= sizeof(float);
    return true;
  case MYSQL_TYPE_DOUBLE:
    column->type= STRATA_DOUBLE;
    column->size= sizeof(double);
    return true;
  case MYSQL_TYPE_TIMESTAMP2:
    sortable_bytes(column, field);
    column->flags|= STRATA_COL_MOMENT;
    return true;
  case MYSQL_TYPE_NEWDECIMAL:
  case MYSQL_TYPE_DATETIME2:
  case MYSQL_TYPE_TIME2:
  case MYSQL_TYPE_BIT: /* without HA_CAN_BIT_FIELD whole bytes, most significant first */
    sortable_bytes(column, field);
    return true;
  case MYSQL_TYPE_STRING:
    /* INET4, INET6 and UUID call themselves strings too: their bytes in the record sort as their values do. */
    if (!dynamic_cast<Field_string *>(field))
    {
      sortable_bytes(column, field);
      return true;
    }
    column->type= STRATA_CHAR;
    column->size= field->pack_length();
    break;
  case MYSQL_TYPE_VARCHAR:
  case MYSQL_TYPE_VARCHAR_COMPRESSED:
  {
    uint length_bytes= static_cast<Field_varstring *>(field)->length_bytes;
    column->type= STRATA_VARCHAR;
    column->length_bytes= (uint8_t) length_bytes;
    column->size= field->pack_length() - length_bytes;
    break;
  }
  case MYSQL_TYPE_TINY_BLOB:
  case MYSQL_TYPE_MEDIUM_BLOB:
  case MYSQL_TYPE_LONG_BLOB:
  case MYSQL_TYPE_BLOB:
  case MYSQL_TYPE_BLOB_COMPRESSED:
  case MYSQL_TYPE_GEOMETRY:
    column->type= STRATA_BLOB;
    column->length_bytes= (uint8_t) static_cast<Field_blob *>(field)->pack_length_no_ptr();
    break;
  default:
    return false;
  }
  /* A compressed column's bytes are what the server's compression made of the text. */
  bool compressed= field->real_type() == MYSQL_TYPE_VARCHAR_COMPRESSED ||
                   field->real_type() == MYSQL_TYPE_BLOB_COMPRESSED;
  describe_collation(compressed ? &my_charset_bin : field->charset(), &column->collation);
  return true;
}

void store_time(ulonglong seconds, ulong microseconds, uint8_t *out)
{
  mi_int4store(out, seconds);
  mi_int3store(out + 4, microseconds);
}

int Definition::describe(TABLE *table, bool temporary, const ha_table_option_struct *options)
{
  const TABLE_SHARE *share= table->s;
  columns_.resize(share->fields);
  for (uint i= 0; i < share->fields; i++)
  {
    Field *field= table->field[i];
    if (!describe_field(table, field, &columns_[i]))
    {
      my_printf_error(ER_NOT_SUPPORTED_YET, "STRATA cannot store column '%s': type %d is not known", MYF(0),
                      field->field_name.str, (int) field->real_type());
      return HA_ERR_UNSUPPORTED;
    }
  }

  size_t part_count= 0;
  for (uint i= 0; i < share->keys; i++)
    part_count+= table->key_info[i].user_defined_key_parts;
  parts_.resize(part_count);
  indexes_.resize(share->keys);
  StrataKeyPart *part= parts_.data();
  for (uint i= 0; i < share->keys; i++)
  {
    const KEY &key= table->key_info[i];
    StrataIndex &index= indexes_[i];
    index.name= key.name.str;
    index.flags= 0;
    if (key.algorithm == HA_KEY_ALG_LONG_HASH)
      index.flags|= STRATA_INDEX_LONG_HASH; /* the server checks uniqueness itself */
    else if (key.flags & HA_NOSAME)
      index.flags|= STRATA_INDEX_UNIQUE;
    if (key.without_overlaps)
      index.flags|= STRATA_INDEX_WITHOUT_OVERLAPS;
    index.part_count= key.user_defined_key_parts;
    index.parts= part;
    for (uint p= 0; p < key.user_defined_key_parts; p++, part++)
    {
      const KEY_PART_INFO &key_part= key.key_part[p];
      part->column= key_part.fieldnr - 1;
      part->length= key_part.length;
      part->flags= key_part.key_part_flag & HA_REVERSE_SORT ? STRATA_PART_DESC : 0;
      part->store_length= key_part.store_length;
    }
  }

  def_= StrataTableDef();
  def_.column_count= (uint32_t) columns_.size();
  def_.columns= columns_.data();
  def_.index_count= (uint32_t) indexes_.size();
  def_.indexes= indexes_.data();
  def_.primary= share->primary_key < MAX_KEY ? (int32_t) share->primary_key : -1;
  def_.record_bytes= (uint32_t) share->reclength;
  def_.null_bytes= share->null_bytes;
  /* A counter per group (AUTO_INCREMENT as a later key part) is read from the index, as the server does it. */
  def_.autoinc_column= table->found_next_number_field && share->next_number_keypart == 0
                           ? (int32_t) table->found_next_number_field->field_index
                           : -1;
  if (temporary)
    def_.flags|= STRATA_TABLE_TEMPORARY;
  if (share->table_type == TABLE_TYPE_SEQUENCE)
    def_.flags|= STRATA_TABLE_NO_ROLLBACK;
  if (has_vector_index(share))
    def_.flags|= STRATA_TABLE_SHORT_REFERENCES;
  if (share->tabledef_version.length == sizeof def_.version)
    memcpy(def_.version, share->tabledef_version.str, sizeof def_.version);
  def_.compression= options ? (int32_t) options->compression - 1 : -1;
  def_.encrypted= options ? (uint8_t) options->encrypted : 0;
  def_.encryption_key= options ? (uint32_t) options->encryption_key : 1;
  def_.ttl= options ? options->ttl : nullptr;
  def_.row_start= def_.row_end= -1;
  if (table->versioned(VERS_TIMESTAMP))
  {
    def_.row_start= (int32_t) table->vers_start_field()->field_index;
    def_.row_end= (int32_t) table->vers_end_field()->field_index;
    store_time(TIMESTAMP_MAX_VALUE, TIME_MAX_SECOND_PART, def_.row_end_max);
  }
  return 0;
}

} // namespace strata
