/* SPDX-License-Identifier: Apache-2.0 */
/* Looks at a process in /proc from a child that is killed after a second: links in /proc/PID/fd wait for locks that
 * the process may keep for ever. fuse_connections.c and stuck_processes.c call it. */
#define _GNU_SOURCE
#include "bounded_look.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "helper_process.h"

/* Of linux/miscdevice.h. */
#define FUSE_MAJOR 10
#define FUSE_MINOR 229

int bounded_look(bool (*look)(const void *argument), const void *argument)
{
	struct helper helper = helper_begin();

	if (!helper.pid)
		(void)syscall(SYS_exit_group, look(argument) ? 1 : 0);
	struct pollfd ended = { .fd = helper.process, .events = POLLIN };
	if (helper.process >= 0)
		(void)poll(&ended, 1, HELPER_LONGEST_MS);
	return helper_end(&helper);
}

bool bounded_look_is_fuse(int files, const char *name)
{
	struct statx st;

	return !statx(files, name, AT_STATX_DONT_SYNC, STATX_TYPE, &st) && S_ISCHR(st.stx_mode) &&
	       st.stx_rdev_major == FUSE_MAJOR && st.stx_rdev_minor == FUSE_MINOR;
}

bool bounded_look_list(int directory, bool (*each)(int directory, const char *name, const void *argument), const void *argument)
{
	_Alignas(struct dirent64) char entries[4096];
	long got;
	bool found = false;

	while (!found && (got = syscall(SYS_getdents64, directory, entries, sizeof(entries))) > 0)
		for (long at = 0; !found && at < got;) {
			const struct dirent64 *entry = (const void *)(entries + at);
			found = entry->d_name[0] != '.' && each(directory, entry->d_name, argument);
			at += entry->d_reclen;
		}
	return found;
}
