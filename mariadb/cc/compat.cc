/* Copyright (C) 2026 the Strata authors. SPDX-License-Identifier: GPL-2.0-only */

/* What depends on the server's version and is more than a line: the costs of plans, and the check of the version itself. */

#include "glue.h"
#include <link.h>
#include <string>

namespace strata {

#if !STRATA_COSTS_IN_READS
/* In milliseconds, of tables whose blocks are in memory. They are InnoDB's, rounded: a plan that is right for its tables in memory is
   right for Strata's, whose reads of a row and steps of a scan take about as long; and who moves a table sees the same plans. */
static void update_costs(OPTIMIZER_COSTS *costs)
{
  costs->row_next_find_cost= 0.00007;
  costs->row_lookup_cost= 0.00077;
  costs->key_next_find_cost= 0.0001;
  costs->key_lookup_cost= 0.00079;
  costs->row_copy_cost= 0.00006;
}
#endif

void install_costs(handlerton *hton)
{
#if STRATA_COSTS_IN_READS
  (void) hton; /* ha_strata::read_time() */
#else
  hton->update_optimizer_costs= update_costs;
#endif
}

/* ---- the server that loads the plugin ---- */

namespace {

/* The linker's note in a program that tells one build from all others, in hexadecimal; empty: there is none. */
std::string build_of(const dl_phdr_info *program)
{
  for (int i= 0; i < program->dlpi_phnum; i++)
  {
    const ElfW(Phdr) &segment= program->dlpi_phdr[i];
    if (segment.p_type != PT_NOTE)
      continue;
    const char *at= reinterpret_cast<const char *>(program->dlpi_addr + segment.p_vaddr), *end= at + segment.p_memsz;
    auto padded= [](size_t length) { return (length + 3) & ~(size_t) 3; };
    while (at + sizeof(ElfW(Nhdr)) <= end)
    {
      const ElfW(Nhdr) *note= reinterpret_cast<const ElfW(Nhdr) *>(at);
      const char *name= at + sizeof *note, *bytes= name + padded(note->n_namesz);
      if (note->n_type == NT_GNU_BUILD_ID && note->n_namesz == 4 && !memcmp(name, "GNU", 4))
      {
        std::string hex;
        for (const char *byte= bytes; byte < bytes + note->n_descsz; byte++)
        {
          hex+= "0123456789abcdef"[(uchar) *byte >> 4];
          hex+= "0123456789abcdef"[(uchar) *byte & 15];
        }
        return hex;
      }
      at= bytes + padded(note->n_descsz);
    }
  }
  return std::string();
}

/* Of the running program, which comes first. */
int first_program(dl_phdr_info *program, size_t, void *build)
{
  *static_cast<std::string *>(build)= build_of(program);
  return 1;
}

#define TEXT_OF(word) #word
#define TEXT_OF_VALUE(macro) TEXT_OF(macro)
constexpr char COMPILED_FOR[]= TEXT_OF_VALUE(STRATA_SERVER_BUILD);

/* When the plugin is loaded, so that it is said also of a server of another version, which does not even call its start. */
bool told_if_unfit()
{
  std::string build;
  dl_iterate_phdr(first_program, &build);
  if (build == COMPILED_FOR)
    return false;
  sql_print_error("Strata: the plugin was compiled for MariaDB " MYSQL_SERVER_VERSION " (build %s) and does not start in another "
                  "build of the server, which this is (version %s, build %s): install the plugin's package for this server, or "
                  "compile it anew",
                  COMPILED_FOR, server_version, build.empty() ? "unknown" : build.c_str());
  return true;
}

const bool unfit= told_if_unfit();

} // namespace

bool fits_server() { return !unfit; }

} // namespace strata
