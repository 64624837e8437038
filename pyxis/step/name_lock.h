/* SPDX-License-Identifier: Apache-2.0 */
/* A lock on a container's name: nodes of a step, and jobs, may share the directory of containers, and one at a time
 * makes a container of that name. */
#ifndef PYXIS_NAME_LOCK_H
#define PYXIS_NAME_LOCK_H

#include "native/base/error.h"

struct pyxis_name_lock {
	int fd;
	char *path; /* of a file beside the root */
};

#define PYXIS_NAME_LOCK_NONE { -1, NULL }

/* Waits as long as another makes it. `root` is the container's directory, made or not. Returns 0 or -1. Where the file
 * system has no locks it goes on without. */
int pyxis_name_lock_take(struct pyxis_name_lock *lock, const char *root, struct jail_error *err);
void pyxis_name_lock_drop(struct pyxis_name_lock *lock);

#define scoped_name_lock __attribute__((cleanup(pyxis_name_lock_drop))) struct pyxis_name_lock

#endif
