/* SPDX-License-Identifier: Apache-2.0 */
/* The net, ipc and uts namespaces that --container-unshare asks for. */
#ifndef PYXIS_STEP_NAMESPACES_H
#define PYXIS_STEP_NAMESPACES_H

#include "native/settings/settings.h"
#include "pyxis/options/request.h"

#define PYXIS_NAMESPACES 3

/* Those that a process is in, as descriptors: what one says cannot become another's. */
struct pyxis_namespaces {
	int folder;              /* /proc/self/ns, which a container's /proc need not have */
	int before[PYXIS_NAMESPACES]; /* -1: not asked for */
};
#define PYXIS_NAMESPACES_NONE { -1, { -1, -1, -1 } }

/* "net", "ipc", "uts": that of bit I of PYXIS_NET... */
const char *pyxis_namespace_name(unsigned i);

/* PYXIS_NET...: what `enroot start` with these settings would have made. */
unsigned pyxis_namespaces_asked(const struct settings *settings);

/* Before a task joins a container: which of the kinds `asked` it is in. Returns 0 or -1. */
int pyxis_namespaces_note(struct pyxis_namespaces *namespaces, unsigned asked, struct jail_error *err);

/* After it: it must be in none of those. Returns 0 or -1. */
int pyxis_namespaces_check(const struct pyxis_namespaces *namespaces, struct jail_error *err);

void pyxis_namespaces_done(struct pyxis_namespaces *namespaces);

#define scoped_namespaces __attribute__((cleanup(pyxis_namespaces_done))) struct pyxis_namespaces

#endif
