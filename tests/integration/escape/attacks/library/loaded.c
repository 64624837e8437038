/* SPDX-License-Identifier: Apache-2.0 */
/* A library that must never be loaded by slurmstepd or slurmd. Its constructor says where it was.
 *
 * Programs in the jail may load it: users' libraries are theirs to load.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

static void say(const char *path)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_APPEND, 0666);

	if (fd < 0)
		return;
	(void)!write(fd, program_invocation_short_name, strlen(program_invocation_short_name));
	(void)!write(fd, "\n", 1);
	close(fd);
}

__attribute__((constructor)) static void loaded(void)
{
	/* The same file, by its name inside and outside. */
	say("/escape/out/loaded");
	say("/mnt/jail/root/escape/out/loaded");
}
