/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of KEY=VALUE pairs: settings of enroot, or the environment of a container. */
#ifndef ENROOT_VARIABLES_H
#define ENROOT_VARIABLES_H

#include "text.h"

/* `list` is fit for execve. Starts as { 0 }. */
struct variables {
	struct text_list list;
};

/* The value, or NULL. */
const char *variables_get(const struct variables *variables, const char *key);
/* Replaces what `key` had. */
void variables_set(struct variables *variables, const char *key, const char *value);
/* "KEY=VALUE"; the key is the first `length` bytes. */
void variables_set_pair(struct variables *variables, const char *pair);
void variables_free(struct variables *variables);

/* Whether `name` is a name: letters, digits and "_", no digit first. */
bool variables_is_name(const char *name, size_t length);
/* The same, or with "." and "-" behind the first: no shell has such a variable, but programs do (discovery.type). */
bool variables_is_key(const char *name, size_t length);

#define scoped_variables __attribute__((cleanup(variables_free))) struct variables

#endif
