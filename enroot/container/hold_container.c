/* SPDX-License-Identifier: Apache-2.0 */
/* Starts a container without a command, and keeps it for others to join (`enroot start --hold`). launch.c and start.c call it. */
#define _GNU_SOURCE
#include "container.h"
#include "hold_container.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "native/mount/plan.h"
#include "native/mount/resolve.h"
#include "native/base/scoped.h"

int hold_prepare(struct hold *hold, const struct settings *settings, struct jail_error *err)
{
	if (!hold->program)
		return 0;
	scoped_free char *path = text_format("%s/enroot-hold", settings_get(settings, "ENROOT_LIBRARY_PATH"));
	hold->program = open(path, O_RDONLY | O_CLOEXEC);
	if (hold->program >= 0)
		return 0;
	jail_fail(err, "open", errno, "the program that keeps a container is missing; is ENROOT_LIBRARY_PATH right?");
	return jail_error_at(err, NULL, 0, path);
}

void hold_make_directory(int root)
{
	struct jail_error ignored;
	scoped_free char *rc = container_read(root, "/etc/rc", CONTAINER_MAX_RC);
	scoped_free char *directory = rc ? hold_directory(rc) : NULL;

	/* Link by link within the root, as mounts are. */
	if (directory)
		jail_close(&(int){ jail_resolve_create(root, directory, JAIL_CREATE_DIR, &ignored) });
}

/* What /etc/rc does before it runs anything. */
static void enter_directory(void)
{
	struct jail_error ignored;
	scoped_free char *rc = text_read(AT_FDCWD, "/etc/rc", CONTAINER_MAX_RC, NULL, &ignored);
	scoped_free char *directory = rc ? hold_directory(rc) : NULL;

	if (!directory)
		return;
	/* One that cannot be made is no reason not to start: the task's own directory is asked for anyway. */
	if (chdir(directory))
		return;
}

/* Entrypoints open files by numbers of their own, "exec 3>&1" (any shell), "exec 200>lock" (bash): the program's was
 * replaced by a log that the shell then ran as a script. Numbers that nobody writes down, if the limit allows. */
static int move_away(int fd)
{
	static const int from[] = { 600, 210, 100 };
	int moved = -1;

	for (size_t i = 0; i < sizeof(from) / sizeof(from[0]) && moved < 0; i++)
		moved = fcntl(fd, F_DUPFD, from[i]);
	if (moved < 0)
		return fcntl(fd, F_SETFD, 0) ? -1 : fd;
	close(fd);
	return moved;
}

char *const *hold_command(struct hold *hold)
{
	hold->program = move_away(hold->program);
	hold->ready = move_away(hold->ready);
	hold->life = move_away(hold->life);
	snprintf(hold->names[0], sizeof(hold->names[0]), "/proc/self/fd/%d", hold->program);
	snprintf(hold->names[1], sizeof(hold->names[1]), "%d", hold->ready);
	snprintf(hold->names[2], sizeof(hold->names[2]), "%d", hold->life);
	for (size_t i = 0; i < 3; i++)
		hold->arguments[i] = hold->names[i];
	hold->arguments[3] = (char *)(uintptr_t)hold->name;
	return hold->arguments;
}

int hold_run(struct hold *hold, char *const *environment, struct jail_error *err)
{
	char *const *arguments = hold_command(hold);

	enter_directory();
	execve(arguments[0], arguments, environment);
	return jail_fail(err, "execve", errno, "cannot keep the container%s",
			 errno == ENOENT ? ": it has no /proc; does a mount hide that, as one over / does?" : "");
}
