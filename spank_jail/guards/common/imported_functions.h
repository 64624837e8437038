/* SPDX-License-Identifier: Apache-2.0 */
/* Replaces functions that a loaded program or library imports, such as accept(2) in slurmd, by a guard's own. */
#ifndef JAIL_IMPORTED_FUNCTIONS_H
#define JAIL_IMPORTED_FUNCTIONS_H

#include <link.h>

#include "native/base/error.h"

/* The program itself; what it has loaded follows by l_next. NULL if it cannot be told. */
struct link_map *jail_imports_program(void);

/* The first of what is loaded whose file's name begins with `name`; NULL if there is none. */
const struct link_map *jail_imports_library(const char *name);

/* Lets `map` call `function` where it calls `name`. Returns 0; 1 when it does not call it; -1. */
int jail_imports_replace(const struct link_map *map, const char *name, void *function, struct jail_error *err);

/* The same for a function of Slurm's, of which `*own`, a pointer to a function, becomes the one that is loaded; `own` may be NULL.
 * Returns 1, too, when none of that name is loaded. */
int jail_imports_wrap(const struct link_map *map, const char *name, void *function, void *own, struct jail_error *err);

#endif
