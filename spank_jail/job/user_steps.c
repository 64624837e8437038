/* SPDX-License-Identifier: Apache-2.0 */
/* Limits how many steps a user has on the node at a time. enter_step.c calls it. */
#define _GNU_SOURCE
#include "user_steps.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "native/base/scoped.h"
#include "job_directory.h"

/* Jobs have a processor each, or share one; a batch job has a step of its own, and some have more. */
#define STEPS_OF_A_PROCESSOR 4
#define FEWEST_STEPS 128

static long most_steps(void)
{
	long steps = STEPS_OF_A_PROCESSOR * sysconf(_SC_NPROCESSORS_CONF);

	return steps > FEWEST_STEPS ? steps : FEWEST_STEPS;
}

/* A step has one byte of the file locked: the kernel takes the lock away when slurmstepd ends, however it does. */
int jail_user_take_step(uid_t user, struct jail_error *err)
{
	scoped_fd directory = jail_user_open(user, err);
	const long most = most_steps();

	if (directory < 0)
		return -1;
	scoped_fd file = openat(directory, JAIL_USER_STEPS, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (file < 0)
		return jail_fail(err, "openat", errno, "cannot note the step in \"" JAIL_HOLDER "\"");
	for (long i = 0; i < most; i++) {
		struct flock place = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = i, .l_len = 1 };
		if (!fcntl(file, F_OFD_SETLK, &place))
			return jail_keep(&file);
		if (errno != EAGAIN && errno != EACCES)
			return jail_fail(err, "fcntl", errno, "cannot note the step in \"" JAIL_HOLDER "\"");
	}
	/* Of no node's fault: what users use up is not (failure.c). */
	return jail_fail(err, "fcntl", EAGAIN, "uid %u has %ld steps on this node, as many as a user may have at a time; "
			 "`scancel` ends some", (unsigned)user, most);
}
