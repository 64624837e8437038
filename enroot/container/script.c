/* SPDX-License-Identifier: Apache-2.0 */
/* Runs shell scripts for a container: hooks, the script of --conf, and its function rc(). environment.c, hooks.c and
 * start.c call it. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "native/base/scoped.h"
#include "native/base/program.h"
#include "native/container/namespaces.h"
#include "container.h"
#include "fstab_apply.h"

#define MAX_SCRIPT (1024 * 1024)

/* The functions of a --conf script are bash's, so bash runs them; without such a function nothing is started. What
 * the script prints by itself is no line of theirs. */
static const char call_function[] = "source \"$0\" >&2 || exit; declare -F -- \"$1\" >/dev/null || exit 0; \"$1\"";
static const char show[] = "source \"$0\" >&2 || exit; declare -F -- \"$1\" >/dev/null || exit 0; declare -f -- \"$1\"";

void container_hook_environment(const struct container *container, struct variables *environment)
{
	char pid[32] = "";
	/* Of the host's /proc, which is still here: the number that others know, not 1. */
	ssize_t length = readlink("/proc/self", pid, sizeof(pid) - 1);
	scoped_free char *environ_path = text_format("%s/environment", container->work);
	scoped_free char *mounts_path = text_format("%s/fstab", container->work);

	for (char **pair = environ; *pair; pair++)
		variables_set_pair(environment, *pair);
	for (size_t i = 0; i < container->settings->variables.list.n; i++)
		variables_set_pair(environment, container->settings->variables.list.items[i]);
	if (length > 0)
		variables_set(environment, "ENROOT_PID", pid);
	variables_set(environment, "ENROOT_ROOTFS", container->top);
	variables_set(environment, "ENROOT_ENVIRON", environ_path);
	variables_set(environment, "ENROOT_MOUNTS", mounts_path);
}

static int run(const struct container *container, const char *code, const char *function, struct text_buffer *output,
	       struct jail_error *err)
{
	scoped_variables environment = { 0 };
	scoped_free char *script = realpath(container->script, NULL);
	char *const arguments[] = { (char *)(uintptr_t)"bash", (char *)(uintptr_t)"-c", (char *)(uintptr_t)code,
				    script, (char *)(uintptr_t)function, NULL };

	if (!script)
		return jail_fail(err, "realpath", errno, "cannot find the script \"%s\"", container->script);
	container_hook_environment(container, &environment);
	const struct program program = { .arguments = arguments, .environment = environment.list.items,
					 .prepare = namespaces_keep_capabilities, .output = output };
	umask(container->mask);
	int status = program_run(&program, err);
	umask(022);
	if (status <= 0)
		return status;
	jail_fail(err, NULL, 0, "its function %s() ended with status %d", function, status);
	return jail_error_at(err, script, 0, NULL);
}

static int has(const struct container *container, const char *function, struct jail_error *err)
{
	scoped_free char *text = text_read(AT_FDCWD, container->script, MAX_SCRIPT, NULL, err);

	return !text ? -1 : strstr(text, function) != NULL;
}

int container_script(const struct container *container, const char *function, struct text_buffer *output,
		     struct jail_error *err)
{
	int there = container->script ? has(container, function, err) : 0;

	return there <= 0 ? there : run(container, call_function, function, output, err);
}

static int bind_rc(struct container *container, const char *source, struct jail_error *err)
{
	const struct expand_request variables = { EXPAND_BRACES, container_lookup, container };
	scoped_free char *from = fstab_field(source);
	scoped_free char *line = text_format("%s /etc/rc none x-create=file,bind,ro,nosuid,nodev\n", from);

	return fstab_apply_text(line, "rc", false, container->root, container->top, &variables, err);
}

int container_rc(struct container *container, struct jail_error *err)
{
	scoped_buffer output = { 0 };
	int there;

	if (container->rc) {
		scoped_free char *text = text_read(AT_FDCWD, container->rc, MAX_SCRIPT, NULL, err);
		if (!text || container_write(container, "rc", text, 0755, err))
			return -1;
	} else if (container->script && (there = has(container, "rc", err))) {
		if (there < 0 || run(container, show, "rc", &output, err))
			return -1;
		if (!output.text || !output.length)
			return 0;
		text_append_string(&output, "\nrc \"$@\"\n");
		if (container_write(container, "rc", output.text, 0755, err))
			return -1;
	} else {
		return 0;
	}
	scoped_free char *path = text_format("%s/rc", container->work);
	return bind_rc(container, path, err);
}
