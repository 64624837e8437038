/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes what pyxis makes of environments. The input has three parts with an empty line between them: options that
 * come as variables, the task's variables, and the container's. */
#define _GNU_SOURCE
#include <string.h>

#include "native/base/variables.h"
#include "native/base/scoped.h"
#include "native/testing/fuzz.h"
#include "pyxis/step/runtime.h"
#include "pyxis/step/task.h"

static void take_lines(char **rest, struct text_list *list)
{
	char *line;

	text_list_add(list, "A=b"); /* never NULL */
	while ((line = strsep(rest, "\n")) && *line)
		text_list_add(list, line);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	scoped_free char *text = strndup((const char *)data, size);
	const struct pyxis_owner owner = { 1, 0, 1000, 1000 };
	scoped_request request = { 0 };
	scoped_variables container = { 0 }, runtime = { 0 };
	scoped_list task = { 0 }, given = { 0 }, changes = { 0 };
	struct pyxis_arguments arguments;
	struct jail_error err;
	char *rest = text, *names = strsep(&rest, "\n");

	MUST(text && !pyxis_arguments_parse(0, NULL, &arguments, &err));
	if (*names && pyxis_request_take(&request, PYXIS_ENV, names, &err))
		must_explain(&err);
	take_lines(&rest, &task);
	take_lines(&rest, &given);
	for (size_t i = 0; i < given.n; i++)
		if (given.items[i][0] != '=' && strchr(given.items[i], '='))
			text_list_add(&container.list, given.items[i]);
	pyxis_task_environment(task.items, &container, &request, &changes);
	for (size_t i = 0; i < changes.n; i++)
		MUST(changes.items[i][0] && changes.items[i][0] != '=');
	pyxis_runtime_environment(&runtime, task.items, &owner, &request, &arguments);
	MUST(!variables_get(&runtime, "LD_PRELOAD") && !variables_get(&runtime, "ENROOT_SYSCONF_PATH"));
	return 0;
}
