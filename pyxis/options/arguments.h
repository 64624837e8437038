/* SPDX-License-Identifier: Apache-2.0 */
/* Parses the plugin's arguments in plugstack.conf. */
#ifndef PYXIS_ARGUMENTS_H
#define PYXIS_ARGUMENTS_H

#include <stdbool.h>

#include "native/base/error.h"

/* How an image becomes a root: where it need not be kept, it is mounted. KERNEL: by the kernel where that may be, root's
 * image for root, and otherwise as AUTO. */
enum pyxis_image_mount { PYXIS_MOUNT_AUTO, PYXIS_MOUNT_FUSE, PYXIS_MOUNT_UNPACK, PYXIS_MOUNT_KERNEL };

struct pyxis_arguments {
	const char *runtime_path, *importer; /* importer: a program, or NULL */
	bool execute_entrypoint, job_scope, sbatch_support, use_enroot_load;
	enum pyxis_image_mount image_mount;
	const char *jail_enter;              /* program that enters the jail for the epilog, or NULL: there is no jail */
};

/* The strings stay the caller's. Returns 0 or -1. */
int pyxis_arguments_parse(int ac, const char *const av[], struct pyxis_arguments *arguments, struct jail_error *err);

#endif
