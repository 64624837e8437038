/* SPDX-License-Identifier: Apache-2.0 */
/* Puts the calling process into the jail for good. Sessions and jail-enter use it; steps of Slurm are entered in
 * stages by spank_jail/slurm. spank_jail/enter and spank_jail/pam call it. */
#define _GNU_SOURCE
#include "enter.h"

#include <fcntl.h>
#include <sched.h>

#include "native/mount/namespace.h"
#include "pid_namespace.h"
#include "native/base/scoped.h"
#include "native/base/sys.h"
#include "tree.h"
#include "native/base/trust.h"

static int read_trusted(const struct jail_entry_request *request, struct jail_plan *plan, struct jail_error *err)
{
	if (request->trust_owners)
		return jail_plan_read(request->plan, plan, err);
	scoped_fd root = jail_open_trusted(request->root, 1, "jail root", err);
	if (root < 0)
		return -1;
	scoped_fd file = jail_open_trusted(request->plan, 0, "mount plan", err);
	if (file < 0)
		return -1;
	return jail_plan_read_fd(file, request->plan, plan, err);
}

static int start_namespace(const struct jail_entry_request *request, const struct jail_plan *plan, int root,
			   struct jail_error *err)
{
	struct jail_pid_view view;
	pid_t init;

	scoped_fd program = jail_pid_program(request->init, err);
	if (program < 0)
		return -1;
	const struct jail_pid_request start = {
		.program = program, .namespace = -1, .root = root, .view = &view, .level = request->level,
	};
	int namespace = jail_pid_view_take(plan, &view, err) ? -1 : jail_pid_start(&start, &init, err);
	jail_pid_view_free(&view);
	return namespace;
}

/* After the pivot. */
static int finish_root(bool nosuid, struct jail_error *err)
{
	scoped_fd root = sys_open("/", O_PATH | O_DIRECTORY);

	if (root < 0)
		return jail_fail(err, "open", errno, "cannot open the jail's root");
	return nosuid ? jail_tree_refuse_suid(root, err) : jail_tree_allow_suid(root, err);
}

static int enter_tree(const struct jail_entry_request *request, const struct jail_plan *plan, struct jail_error *err)
{
	bool own_pids = request->level >= JAIL_LEVEL_PID && request->init, shared = !own_pids && request->pids > 0;
	const struct jail_apply_options processes = {
		.plan = plan, .level = request->level, .part = JAIL_PART_PROC, .notice = request->notice,
		.context = request->context,
	};
	const struct jail_apply_options options = {
		.plan = plan, .level = request->level, .part = own_pids || shared ? JAIL_PART_OTHERS : JAIL_PART_ALL,
		.notice = request->notice, .context = request->context,
	};

	/* What a session leaves of System V and POSIX message objects ends with it; the plan's mqueue shows its own. */
	if (sys_unshare(CLONE_NEWIPC))
		return jail_fail(err, "unshare", errno, "an IPC namespace needs CAP_SYS_ADMIN");
	if (jail_namespace_private(err))
		return -1;
	scoped_fd root = jail_tree_attach(request->root, err);
	if (root < 0 || jail_tree_apply(root, &options, err) ||
	    (shared && jail_pid_apply(request->pids, root, &processes, err)))
		return -1;
	/* Before the pivot, which takes the init along: afterwards there is no /proc to find the namespace in. */
	scoped_fd pids = own_pids ? start_namespace(request, plan, root, err) : -1;
	if ((own_pids && pids < 0) || jail_namespace_pivot(request->root, err) || finish_root(request->nosuid, err))
		return -1;
	return own_pids ? jail_pid_enter(pids, err) : shared ? jail_pid_enter(request->pids, err) : 0;
}

int jail_enter(const struct jail_entry_request *request, struct jail_error *err)
{
	struct jail_plan plan;

	if (read_trusted(request, &plan, err))
		return -1;
	plan.trust_owners = request->trust_owners;
	/* Before the pivot: the specifications are the node's. */
	bool asked = request->environment;
	int result = asked ? jail_cdi_environment(&plan, request->environment, err) : 0;
	if (!result && enter_tree(request, &plan, err)) {
		result = -1;
		if (asked)
			jail_environment_free(request->environment);
	}
	jail_plan_free(&plan);
	return result;
}
