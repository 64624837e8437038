/* SPDX-License-Identifier: Apache-2.0 */
/* A tree of the values in a YAML document, or in JSON, which is YAML 1.2.
 *
 * The library is opened when the first document is read, so that a step whose plan has no cdi line pays nothing for
 * it. That loads code: to be called where the node's own files are "/", never in the jail.
 */
#ifndef JAIL_YAML_TREE_H
#define JAIL_YAML_TREE_H

#include <stdbool.h>
#include <stddef.h>

#include "arena.h"
#include "error.h"

enum jail_yaml_kind { JAIL_YAML_SCALAR, JAIL_YAML_LIST, JAIL_YAML_MAP };

struct jail_yaml_node {
	enum jail_yaml_kind kind;
	int line;         /* from 1 */
	bool plain;       /* a scalar without quotes: it may mean a number or null */
	const char *key;  /* of a value in a map, else NULL */
	const char *text; /* of a scalar */
	const struct jail_yaml_node *first, *next; /* children of a list or map; siblings */
	size_t n;         /* number of children */
};

/* Reads the one document in `length` bytes at `text` into `arena`; `name` stands for the file in errors,
 * which also carry the line. Refused besides what is no YAML: anchors and aliases, tags, more than one
 * document, keys that are no strings or come twice, nesting deeper than 16, bytes of zero.
 * Returns the document's root, or NULL; err->number is ENOENT when libyaml is not installed. */
const struct jail_yaml_node *jail_yaml_parse(const char *text, size_t length, const char *name,
					     struct jail_arena *arena, struct jail_error *err);

#endif
