/* SPDX-License-Identifier: Apache-2.0 */
/* Notes the first process (init) of each step's own PID namespace, and kills those that are left at the job's end.
 * enter_step.c and job_mounts.c call it. */
#define _GNU_SOURCE
#include "step_inits.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "native/base/scoped.h"
#include "native/jail/pid_namespace.h"

#define INITS "step-inits"
/* As many are kept, the newest of those that have not ended: a job may have any number of steps, few at a time. */
#define MOST 256

static int open_noted(int directory, int flags)
{
	return openat(directory, INITS, flags | O_NOFOLLOW | O_CLOEXEC, 0600);
}

static size_t read_noted(int file, struct jail_process inits[MOST])
{
	ssize_t got = file < 0 ? -1 : pread(file, inits, MOST * sizeof(*inits), 0);

	return got < 0 ? 0 : (size_t)got / sizeof(*inits);
}

/* Those that have not ended, in their order; not the oldest, if none has. */
static size_t drop_ended(struct jail_process inits[MOST], size_t count)
{
	size_t kept = 0;

	for (size_t i = 0; i < count; i++) {
		scoped_fd process = jail_process_open(&inits[i]);
		if (process >= 0)
			inits[kept++] = inits[i];
	}
	for (size_t i = 1; kept == MOST && i < MOST; i++)
		inits[i - 1] = inits[i];
	return kept == MOST ? MOST - 1 : kept;
}

int jail_step_init_note(int directory, pid_t init, struct jail_error *err)
{
	struct jail_process inits[MOST], noted = { .number = init };
	scoped_fd file = open_noted(directory, O_RDWR | O_CREAT);

	if (file < 0 || jail_process_note(&noted))
		return jail_fail(err, file < 0 ? "openat" : "read", errno, "cannot note the init of the step's PID namespace");
	size_t count = read_noted(file, inits);
	if (count == MOST)
		count = drop_ended(inits, count);
	inits[count++] = noted;
	ssize_t length = (ssize_t)(count * sizeof(*inits));
	if (pwrite(file, inits, (size_t)length, 0) != length || ftruncate(file, length))
		return jail_fail(err, "write", errno, "cannot note the init of the step's PID namespace");
	return 0;
}

void jail_step_inits_end(int directory, uid_t user, jail_user_release *release)
{
	struct jail_process inits[MOST];
	struct pollfd ends[MOST];
	scoped_fd file = open_noted(directory, O_RDONLY);
	size_t count = read_noted(file, inits), left = 0;

	for (size_t i = 0; i < count; i++) {
		ends[i] = (struct pollfd){ .fd = jail_process_open(&inits[i]), .events = POLLIN };
		if (ends[i].fd >= 0)
			(void)syscall(SYS_pidfd_send_signal, ends[i].fd, SIGKILL, NULL, 0);
	}
	for (int look = 0; release && look < JAIL_END_LOOKS; look++) {
		left = 0;
		for (size_t i = 0; i < count; i++)
			if (ends[i].fd >= 0 && !poll(&ends[i], 1, left ? 0 : JAIL_END_LOOK_MS)) {
				release(inits[i].number, user);
				left++;
			}
		if (!left)
			break;
	}
	for (size_t i = 0; i < count; i++)
		jail_close(&ends[i].fd);
}
