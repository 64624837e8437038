/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the host's ldconfig over the container's root after a hook has mounted libraries there. mellanox.c and
 * nvidia_cdi.c call it. */
#define _GNU_SOURCE
#include "native/base/scoped.h"
#include "native/base/program.h"
#include "native/container/namespaces.h"
#include "native/base/report.h"
#include "hook.h"

/* The container's libraries by the host's ldconfig: nothing of the image runs outside it. */
int hook_update_libraries(const struct container *container, const struct text_list *folders, struct jail_error *err)
{
	scoped_list arguments = { 0 };

	if (!folders->n)
		return 0;
	text_list_add(&arguments, "/sbin/ldconfig");
	text_list_add(&arguments, "-r");
	text_list_add(&arguments, container->top);
	for (size_t i = 0; i < folders->n; i++)
		text_list_add(&arguments, folders->items[i]);
	const struct program program = { .arguments = arguments.items, .quiet = true,
					 .prepare = namespaces_keep_capabilities };
	int status = program_run(&program, err);
	if (status > 0)
		report_warning("ldconfig ended with status %d: programs may not find the driver's libraries", status);
	return status < 0 ? -1 : 0;
}
