#define _GNU_SOURCE
#include <string.h>

#include "hook.h"

/* The host's cgroup file systems came with /sys, version 1, 2 or both, and are read-only with it: what a program
 * reads there is its own cgroup's place in the whole tree, as /proc/self/cgroup names it. */
int hook_cgroups(struct container *container, struct jail_error *err)
{
	(void)container;
	(void)err;
	return 0;
}
