/* SPDX-License-Identifier: Apache-2.0 */
/* Tells whether a container's root is still the same directory, or a new one of that name. container.c and save.c
 * call it. */
#define _GNU_SOURCE
#include "root_identity.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "native/base/scoped.h"
#include "native/base/text.h"

struct pyxis_root_identity pyxis_root_of_path(const char *path)
{
	struct statx found;

	if (statx(AT_FDCWD, path, 0, STATX_INO | STATX_BTIME, &found))
		return (struct pyxis_root_identity){ 0 };
	return (struct pyxis_root_identity){
		.inode = found.stx_ino, .born_s = found.stx_mask & STATX_BTIME ? found.stx_btime.tv_sec : 0,
		.born_ns = found.stx_mask & STATX_BTIME ? found.stx_btime.tv_nsec : 0,
		.device_major = found.stx_dev_major, .device_minor = found.stx_dev_minor,
	};
}

struct pyxis_root_identity pyxis_root_of_process(pid_t process)
{
	scoped_free char *path = text_format("/proc/%d/root", (int)process);

	return pyxis_root_of_path(path);
}

bool pyxis_root_is_same(const struct pyxis_root_identity *a, const struct pyxis_root_identity *b)
{
	return a->inode && a->inode == b->inode && a->device_major == b->device_major && a->device_minor == b->device_minor &&
	       a->born_s == b->born_s && a->born_ns == b->born_ns;
}
