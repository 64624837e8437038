/* SPDX-License-Identifier: Apache-2.0 */
/* Tells whether a container's root is still the same directory, or one that got its name meanwhile (`enroot remove`,
 * `enroot create`).
 *
 * A new directory may get the inode number of the removed one; it has another time of birth, where the file system
 * knows that.
 */
#ifndef PYXIS_ROOT_IDENTITY_H
#define PYXIS_ROOT_IDENTITY_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct pyxis_root_identity {
	uint64_t inode; /* 0: not known */
	int64_t born_s;
	uint32_t born_ns, device_major, device_minor;
};

struct pyxis_root_identity pyxis_root_of_path(const char *path);

/* The root directory of a process: what it runs in, whatever has that path now. */
struct pyxis_root_identity pyxis_root_of_process(pid_t process);

/* False where one is not known. */
bool pyxis_root_is_same(const struct pyxis_root_identity *a, const struct pyxis_root_identity *b);

#endif
