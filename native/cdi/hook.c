/* SPDX-License-Identifier: Apache-2.0 */
/* Does in the jail what the hooks of a CDI specification would do. apply.c, stubs.c and spank_jail/driver call it.
 *
 * A hook is a program that a container runtime runs as root on the container's files. Over the jail, which users
 * write, it must not run. So two are replaced here: create-symlinks by making the links; update-ldcache by nothing,
 * for ld.so.cache in the jail lists the driver's libraries already (docs/decisions/jail-cdi.md).
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "apply.h"
#include "native/base/scoped.h"
#include "native/base/sys.h"

int jail_cdi_link(int directory, const char *name, const char *content, struct jail_error *err)
{
	if (sys_symlinkat(content, directory, name) && errno != EEXIST)
		return jail_fail(err, "symlinkat", errno, "cannot make the link \"%s\"", name);
	return 0;
}

/* After the last slash. */
static const char *base(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

/* `pair` is CONTENT::PATH. */
static int visit_pair(const char *pair, jail_cdi_link_visitor *visit, void *context, struct jail_error *err)
{
	char content[1024];
	const char *middle = strstr(pair, "::");

	if (!middle || middle == pair || middle[2] != '/' || !*base(middle + 2) || strstr(middle, "/../") ||
	    (size_t)(middle - pair) >= sizeof(content) || strlen(middle) > sizeof(content))
		return jail_fail(err, NULL, 0, "expected CONTENT::/PATH after --link, found \"%.200s\"", pair);
	memcpy(content, pair, (size_t)(middle - pair));
	content[middle - pair] = '\0';
	return visit(context, content, middle + 2, err);
}

/* nvidia-cdi-hook SUBCOMMAND ..., or nvidia-ctk hook SUBCOMMAND ... */
static const char *subcommand(const struct jail_cdi_hook *hook)
{
	size_t i = hook->arguments.n > 1 && !strcmp(hook->arguments.items[1], "hook") ? 2 : 1;

	return i < hook->arguments.n ? hook->arguments.items[i] : "";
}

int jail_cdi_hook_links(const struct jail_cdi_hook *hook, jail_cdi_link_visitor *visit, void *context,
			struct jail_error *err)
{
	const struct jail_cdi_strings *arguments = &hook->arguments;

	if (strcmp(subcommand(hook), "create-symlinks"))
		return 0;
	for (size_t i = 0; i < arguments->n; i++) {
		const char *pair = NULL;
		if (!strncmp(arguments->items[i], "--link=", 7))
			pair = arguments->items[i] + 7;
		else if (!strcmp(arguments->items[i], "--link") && i + 1 < arguments->n)
			pair = arguments->items[++i];
		if (pair && visit_pair(pair, visit, context, err))
			return -1;
	}
	return 0;
}

struct links {
	const struct jail_cdi_stage *stage;
	struct jail_cdi_names *left_out;
};

static int make_link(void *context, const char *content, const char *path, struct jail_error *err)
{
	const struct links *links = context;
	int libraries = links->stage->parts[JAIL_CDI_LIBRARIES];

	if (!strncmp(path, "/dev/", 5)) {
		scoped_fd parent = jail_cdi_parent(links->stage, path, err);
		return parent < 0 ? -1 : jail_cdi_link(parent, base(path), content, err);
	}
	/* All libraries lie in one directory here, so a link between two directories becomes one between
	 * names; where the names are equal it has nothing to do any more. */
	if (jail_cdi_is_library(base(path)) && libraries >= 0)
		return strcmp(base(path), base(content)) ? jail_cdi_link(libraries, base(path), base(content), err) : 0;
	jail_cdi_names_add(links->left_out, path);
	return 0;
}

int jail_cdi_replace_hook(const struct jail_cdi_stage *stage, const struct jail_cdi_hook *hook,
			  struct jail_cdi_names *left_out, struct jail_error *err)
{
	char name[300];

	if (!strcmp(subcommand(hook), "create-symlinks")) {
		struct links links = { stage, left_out };
		return jail_cdi_hook_links(hook, make_link, &links, err);
	}
	if (!strcmp(subcommand(hook), "update-ldcache"))
		return 0;
	snprintf(name, sizeof(name), "%.180s%s%.100s", hook->path ? base(hook->path) : "a hook without a path",
		 *subcommand(hook) ? " " : "", subcommand(hook));
	jail_cdi_names_add(left_out, name);
	return 0;
}
