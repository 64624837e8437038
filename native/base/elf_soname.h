/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the SONAME of a shared object: the name by which programs that are linked with it ask for it. */
#ifndef JAIL_ELF_SONAME_H
#define JAIL_ELF_SONAME_H

#include <stddef.h>

enum jail_elf { JAIL_ELF_FOREIGN, JAIL_ELF_OURS };

/* Reads DT_SONAME of the file `path` into `soname` ("" when it has none). JAIL_ELF_FOREIGN: no shared
 * object that this very process could load, such as a 32-bit one, or none at all. */
enum jail_elf jail_elf_soname(const char *path, char *soname, size_t size);

#endif
