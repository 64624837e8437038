#define _GNU_SOURCE
#include "enter.h"

#include <fcntl.h>

#include "namespace.h"
#include "scoped.h"
#include "tree.h"
#include "trust.h"

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

int jail_enter(const struct jail_entry_request *request, struct jail_error *err)
{
	struct jail_plan plan;
	int result = -1;

	if (read_trusted(request, &plan, err))
		return -1;
	const struct jail_setup setup = { &plan, NULL, request->notice, request->context };
	if (!jail_namespace_private(err)) {
		scoped_fd root = jail_tree_attach(request->root, err);
		if (root >= 0 && !jail_tree_apply_at(root, &setup, request->level, err))
			result = jail_namespace_pivot(request->root, err);
	}
	jail_plan_free(&plan);
	return result;
}
