/* SPDX-License-Identifier: Apache-2.0 */
/* Parses the part of TOML 1.0 that registries.conf uses. The rest is refused, with its line. */
#ifndef REGISTRY_TOML_H
#define REGISTRY_TOML_H

#include <jansson.h>

#include "native/base/error.h"

/* A table as an object, which the caller frees: strings, integers, booleans, arrays, tables. Floats and dates are strings
 * of what stands there. NULL with `err`, which has the line. */
json_t *toml_parse(const char *text, struct jail_error *err);

/* The line that began the table, from 1; 0: it came by itself. */
int toml_line(const json_t *table);

/* The member of a table; its key in every table. Not to be shown. */
#define TOML_LINE "\001line"

#endif
