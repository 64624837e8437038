/* SPDX-License-Identifier: Apache-2.0 */
/* Namespaces of a step that are not to be the node's: net, ipc, uts. */
#ifndef PYXIS_NAMESPACES_H
#define PYXIS_NAMESPACES_H

#include "native/settings/settings.h"
#include "pyxis/options/request.h"

#define PYXIS_SPACES 3

/* Those that a process is in, as descriptors: what one says cannot become another's. */
struct pyxis_spaces {
	int folder;              /* /proc/self/ns, which a container's /proc need not have */
	int before[PYXIS_SPACES]; /* -1: not asked for */
};
#define PYXIS_SPACES_NONE { -1, { -1, -1, -1 } }

/* "net", "ipc", "uts": that of bit I of PYXIS_NET... */
const char *pyxis_space_name(unsigned i);

/* PYXIS_NET...: what `enroot start` with these settings would have made. */
unsigned pyxis_spaces_asked(const struct settings *settings);

/* Before a task joins a container: which of the kinds `asked` it is in. Returns 0 or -1. */
int pyxis_spaces_note(struct pyxis_spaces *spaces, unsigned asked, struct jail_error *err);

/* After it: it must be in none of those. Returns 0 or -1. */
int pyxis_spaces_check(const struct pyxis_spaces *spaces, struct jail_error *err);

void pyxis_spaces_done(struct pyxis_spaces *spaces);

#define scoped_spaces __attribute__((cleanup(pyxis_spaces_done))) struct pyxis_spaces

#endif
