/* SPDX-License-Identifier: Apache-2.0 */
/* Runs programs that prepare or save a step's container, such as enroot, and shows their messages to the user.
 * container.c, image.c, save.c and pyxis/slurm/plugin.c call it. */
#define _GNU_SOURCE
#include "container_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "native/base/scoped.h"
#include "program_log.h"

/* Imports of a few seconds need no word; of those that take minutes one wants to see that they go on. */
#define PROGRESS_EVERY_MS 10000

void pyxis_container_say(const struct pyxis_container *container, const char *format, const char *first, const char *second)
{
	char line[2048];

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
	snprintf(line, sizeof(line), format, first, second);
#pragma GCC diagnostic pop
	container->say(jail_one_line(line));
}

int pyxis_container_begin(struct pyxis_container *container, const char *program, struct jail_error *err)
{
	container->heading = strcmp(program, "enroot") ? "printing importer log file:" : "printing enroot log file:";
	container->shown = 0;
	return pyxis_log_clear(container->log, err);
}

struct telling {
	struct pyxis_container *container;
	const char *progress;
};

static void tell(void *context)
{
	const struct telling *telling = context;
	struct pyxis_container *container = telling->container;
	scoped_free char *text = pyxis_log_text(container->log, container->shown, &container->shown);
	scoped_free char *latest = text ? pyxis_log_latest(text) : NULL;

	if (latest)
		pyxis_container_say(container, "%s: %s", telling->progress, latest);
}

int pyxis_container_run(struct pyxis_container *container, char *const *arguments, struct text_buffer *output,
			const char *progress, struct jail_error *err)
{
	struct telling telling = { container, progress };
	const struct pyxis_meanwhile meanwhile = { PROGRESS_EVERY_MS, tell, &telling };

	if (pyxis_container_begin(container, arguments[0], err))
		return -1;
	return pyxis_runtime_run(arguments, &container->environment, container->log, container->inherited, output,
				 progress ? &meanwhile : NULL, err);
}

static void say_lines(const struct pyxis_container *container, const char *before, char *text)
{
	char *line;

	for (char *rest = text; (line = strsep(&rest, "\n"));)
		if (*line)
			pyxis_container_say(container, "%s%s", before, line);
}

void pyxis_container_show_log(const struct pyxis_container *container)
{
	scoped_free char *text = pyxis_log_text(container->log, 0, NULL);

	if (!text)
		return;
	container->say(container->heading);
	say_lines(container, "    ", text);
}

void pyxis_container_explain(const struct pyxis_container *container)
{
	scoped_free char *text = pyxis_log_text(container->log, 0, NULL);
	scoped_free char *reason = text ? pyxis_log_reason(text) : NULL;

	if (reason)
		say_lines(container, "", reason);
	if (container->advice)
		say_lines(container, "", container->advice);
	pyxis_container_show_log(container);
}
