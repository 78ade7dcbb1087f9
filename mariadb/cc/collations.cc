/* Copyright (C) 2026 the Strata authors. SPDX-License-Identifier: GPL-2.0-only */

/* Text order for the row layer: it stores keys as collation weights, which only the server can compute. */

#include "glue.h"

namespace strata {
namespace {

const CHARSET_INFO *charset_of(const void *cs) { return static_cast<const CHARSET_INFO *>(cs); }

/* Order of values = order of their bytes? Code points of UTF-8 sort as its bytes do, those of UTF-16 do not, and the
   multi-byte sets of Asia are left to their own weights. */
bool byte_ordered(const CHARSET_INFO *cs)
{
  if (!(cs->state & MY_CS_BINSORT))
    return false;
  return cs->mbmaxlen == 1 || !strncmp(cs->cs_name.str, "utf8", 4);
}

size_t prefix_bytes(const void *cs, const uint8_t *src, size_t length, size_t nchars)
{
  const CHARSET_INFO *charset= charset_of(cs);
  if (charset->mbmaxlen == 1 || nchars >= length)
    return MY_MIN(length, nchars);
  size_t bytes= charset->charpos(src, src + length, nchars);
  return MY_MIN(bytes, length);
}

/* big5_chinese_ci and its NO PAD sister compare characters by their codes, but weigh them by strokes, of which most
   characters have none of their own. */
bool compares_codes(const CHARSET_INFO *cs)
{
  constexpr uint BIG5_CHINESE= 1, NOPAD= 1024;
  return cs->number == BIG5_CHINESE || cs->number == BIG5_CHINESE + NOPAD;
}

/* The order of these: single bytes by the table, pairs by their code, what is neither behind all. */
size_t code_weights(const CHARSET_INFO *charset, const uint8_t *src, size_t length, uint8_t *dst, size_t capacity)
{
  const uint8_t *end= src + length;
  uint8_t *to= dst, *last= dst + capacity;
  while (src < end && last - to >= 2)
  {
    if (*src < 0x80)
    {
      *to++= charset->sort_order[*src++];
      continue;
    }
    bool pair= charset->charlen(reinterpret_cast<const char *>(src), reinterpret_cast<const char *>(end)) == 2;
    *to++= pair ? *src++ : 0xff;
    *to++= *src++;
  }
  return to - dst;
}

size_t weights(const void *cs, uint32_t form, const uint8_t *src, size_t length, size_t nchars, uint8_t *dst,
               size_t capacity)
{
  const CHARSET_INFO *charset= charset_of(cs);
  /* One character may have many weights: the number of characters bounds the source, not the result. */
  length= prefix_bytes(cs, src, length, nchars);
  if (form > 1 && compares_codes(charset))
    return code_weights(charset, src, length, dst, capacity);
  return charset->strnxfrm(dst, capacity, UINT_MAX32, src, length, 0);
}

/* A single character can expand to about two dozen weights on each level, of two bytes each. The server's own bound
   (strnxfrmlen) holds for ordinary text only. */
constexpr size_t MOST_WEIGHTS= 25, WEIGHT_BYTES= 2, MARKED_WEIGHT_BYTES= 3;

size_t weights_max(const void *cs, size_t length)
{
  const CHARSET_INFO *charset= charset_of(cs);
  size_t chars= length / charset->mbminlen + 1;
  size_t usual= charset->strnxfrmlen(chars * charset->mbmaxlen);
  if (compares_codes(charset))
    return MY_MAX(usual, 2 * length + 2);
  if (!charset->uca)
    return usual;
  size_t levels= my_count_bits(charset->levels_for_order);
  if (levels <= 1)
    return MY_MAX(usual, chars * MOST_WEIGHTS * WEIGHT_BYTES);
  return levels * (chars * MOST_WEIGHTS * MARKED_WEIGHT_BYTES + 1);
}

uint weight_at(const uchar *bytes) { return (uint) bytes[0] << 8 | bytes[1]; }

uint space_weight(const CHARSET_INFO *charset, uint level_flag)
{
  uchar space[MY_CS_MBMAXLEN], weight[MOST_WEIGHTS * WEIGHT_BYTES];
  int length= charset->wc_mb(' ', space, space + sizeof space);
  return length > 0 && charset->strnxfrm(weight, sizeof weight, 1, space, length, level_flag) >= WEIGHT_BYTES
             ? weight_at(weight)
             : 0;
}

/* One level of weights, so that byte order is the level's order and nothing follows but a later level: before each weight
   stands whether the text from here on sorts below (1) or above (3) the shorter text's padding, and 2 ends it. Without
   padding a text sorts below all that it begins. */
uchar *put_level(const uchar *weights, size_t count, bool pad, uint space, uchar *to)
{
  thread_local std::vector<uchar> markers;
  constexpr uchar BELOW= 1, END= 2, ABOVE= 3;
  markers.assign(count, ABOVE);
  if (pad)
  {
    uchar after= END;
    for (size_t i= count; i-- > 0;)
    {
      uint weight= weight_at(weights + i * WEIGHT_BYTES);
      after= weight < space ? BELOW : weight > space ? ABOVE : after;
      markers[i]= after;
    }
    while (count && markers[count - 1] == END)
      count--;
  }
  for (size_t i= 0; i < count; i++)
  {
    *to++= markers[i];
    *to++= weights[i * WEIGHT_BYTES];
    *to++= weights[i * WEIGHT_BYTES + 1];
  }
  *to++= END;
  return to;
}

/* Weights of several levels. The server would pad each level to the column's length; it is shorter, and exact for
   characters of many weights, to mark where each level ends. */
size_t weights_padded(const void *cs, uint32_t form, const uint8_t *src, size_t length, size_t nchars, uint8_t *dst,
                      size_t capacity)
{
  const CHARSET_INFO *charset= charset_of(cs);
  bool pad= !(charset->state & MY_CS_NOPAD);
  length= prefix_bytes(cs, src, length, nchars);
  if (pad)
    length= charset->lengthsp(reinterpret_cast<const char *>(src), length);
  if (!charset->uca)
  {
    /* The Czech collations separate their levels; what they return may count bytes that found no room. */
    size_t bytes= charset->strnxfrm(dst, capacity, UINT_MAX32, src, length, 0);
    return MY_MIN(bytes, capacity);
  }
  thread_local std::vector<uchar> level_weights;
  level_weights.resize((length / charset->mbminlen + 1) * MOST_WEIGHTS * WEIGHT_BYTES);
  uchar *to= dst;
  for (uint level= 0; level < MY_STRXFRM_NLEVELS; level++)
  {
    if (!(charset->levels_for_order & (1 << level)))
      continue;
    uint flag= MY_STRXFRM_LEVEL1 << level;
    size_t count=
        charset->strnxfrm(level_weights.data(), level_weights.size(), UINT_MAX32, src, length, flag) / WEIGHT_BYTES;
    if ((size_t) (dst + capacity - to) < count * MARKED_WEIGHT_BYTES + 1)
      break;
    /* Of a NO PAD collation the server compares the first level without padding and the others with it: 'e' and an
       accented one differ in the number of their weights of the third level. */
    bool padded= pad || (form > 1 && level > 0);
    to= put_level(level_weights.data(), count, padded, padded ? space_weight(charset, flag) : 0, to);
  }
  return to - dst;
}

int find(uint32_t id, StrataCollation *out)
{
  const CHARSET_INFO *cs= get_charset(id, MYF(0));
  if (!cs)
    return 0;
  describe_collation(cs, out);
  return 1;
}

} // namespace

void describe_collation(const CHARSET_INFO *cs, StrataCollation *out)
{
  out->id= cs->number;
  out->mbminlen= cs->mbminlen;
  out->mbmaxlen= cs->mbmaxlen;
  out->name= collation_name(cs);
  out->cs= cs;
  out->flags= 0;
  if (cs == &my_charset_bin)
  {
    out->flags= STRATA_CS_BINARY | STRATA_CS_BYTES;
    return;
  }
  if (!(cs->state & MY_CS_NOPAD))
    out->flags|= STRATA_CS_PAD;
  if (byte_ordered(cs))
    out->flags|= STRATA_CS_BYTES;
  else if (cs->levels_for_order > 1)
    out->flags|= STRATA_CS_MULTILEVEL;
  if (compares_codes(cs) || ((out->flags & STRATA_CS_MULTILEVEL) && cs->uca && !(out->flags & STRATA_CS_PAD)))
    out->flags|= STRATA_CS_TWO_FORMS;
}

void install_collation_callbacks(StrataCallbacks *callbacks)
{
  callbacks->weights= weights;
  callbacks->weights_max= weights_max;
  callbacks->weights_padded= weights_padded;
  callbacks->prefix_bytes= prefix_bytes;
  callbacks->find= find;
}

} // namespace strata
