/* SPDX-License-Identifier: Apache-2.0 */
/* node-checks: the quick checks of a node's health, as one program that looks at the name it is called by.
 * node-health runs it.
 *
 * It is no script per check, because all together may take 50 ms of processor time per run.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>

#include "check.h"

static const struct {
	const char *name;
	int (*run)(void);
} checks[] = {
	{ "jail", check_jail },		    { "shared", check_shared },
	{ "writable", check_writable },	    { "disk", check_disk },
	{ "memory", check_memory },	    { "shm", check_shm },
	{ "resources", check_resources },   { "cgroup", check_cgroup },
	{ "clock", check_clock },	    { "dns", check_dns },
	{ "auth", check_auth },		    { "network", check_network },
	{ "stuck", check_stuck },	    { "zombies", check_zombies },
	{ "leftovers", check_leftovers },   { "kernel-errors", check_kernel_errors },
	{ "kernel-warnings", check_kernel_warnings }, { "gpu", check_gpu },
	{ "gpu-errors", check_gpu_errors }, { "gpu-links", check_gpu_links },
	{ "gpu-state", check_gpu_state },   { "gpu-xid", check_gpu_xid },
	{ "gpu-xid-warnings", check_gpu_xid_warnings },
};

int main(int argc, char **argv)
{
	const char *slash = argc ? strrchr(argv[0], '/') : NULL, *name = slash ? slash + 1 : argc ? argv[0] : "";
	int status = -1;

	check_arguments = argc ? argv + 1 : argv;
	for (size_t i = 0; i < sizeof(checks) / sizeof(checks[0]); i++)
		if (!strcmp(name, checks[i].name))
			status = checks[i].run();
	if (status < 0)
		status = check_could_not_run("there is no check '%s'", name);
	return fflush(stdout) ? CHECK_COULD_NOT_RUN : status;
}
