/* SPDX-License-Identifier: Apache-2.0 */
/* Installs the guards of slurmd and slurmstepd from spank_jail/guards, which keep users from stopping these daemons.
 * plugin.c calls it. */
#define _GNU_SOURCE
#include "guards.h"

#include "spank_jail/guards/common/array_sizes.h"
#include "spank_jail/guards/common/imported_functions.h"
#include "spank_jail/guards/step/accounting.h"
#include "spank_jail/guards/step/silent_clients.h"
#include "spank_jail/guards/node/connections.h"
#include "spank_jail/guards/step/core_dumps.h"
#include "spank_jail/guards/node/expanded_blocks.h"
#include "spank_jail/guards/node/stuck_children.h"
#include "spank_jail/guards/node/launches.h"
#include "spank_jail/guards/step/process_tree.h"
#include "spank_jail/guards/node/confined_forks.h"
#include "spank_jail/guards/step/wakeups.h"
#include "failure.h"

void jail_guard_slurmd(const char *bcast)
{
	struct jail_error err;

	if (jail_stuck_children_watch(&err))
		jail_failure_report(&err);
	if (jail_confined_forks_guard(bcast, &err))
		jail_failure_report(&err);
	if (jail_launches_guard(&err))
		jail_failure_report(&err);
	if (jail_connections_guard(&err))
		jail_failure_report(&err);
	if (jail_expanded_blocks_guard(&err))
		jail_failure_report(&err);
	int missing = jail_array_sizes_guard(jail_imports_library("libslurm"), &err);
	if (missing > 0)
		jail_fail(&err, NULL, 0, "slurmd makes room for what messages have in an unknown way: users can fill its memory");
	if (missing)
		jail_failure_report(&err);
}

void jail_guard_ending(uid_t user)
{
	struct jail_error err;

	if (jail_process_tree_guard(user, &err))
		jail_failure_report(&err);
	if (jail_core_dumps_guard(&err))
		jail_failure_report(&err);
	if (jail_clients_guard(&err))
		jail_failure_report(&err);
	if (jail_accounting_guard(&err))
		jail_failure_report(&err);
	if (jail_wakeups_guard(&err))
		jail_failure_report(&err);
}
