/* SPDX-License-Identifier: Apache-2.0 */
/* Parses one mount of the option --container-mounts into a line of fstab, which enroot takes. request.c calls it. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "native/container/fstab.h"
#include "native/base/scoped.h"
#include "request.h"

static bool is_path(const char *text)
{
	return text[0] == '.' || text[0] == '/';
}

static char *wrong(const char *mount, const char *what, struct jail_error *err)
{
	jail_fail(err, NULL, 0, "\"%s\": %s; expected SRC[:DST[:FLAGS]] with + between flags", mount, what);
	return NULL;
}

/* "ro+nosuid" as ",ro,nosuid"; NULL where one is empty or holds what would be another field. */
static char *join_flags(const char *flags)
{
	char *joined = text_format(",%s", flags);

	for (char *c = joined; *c; c++)
		if (*c == '+')
			*c = ',';
	if (strpbrk(joined, " \t\n\r") || strstr(joined, ",,") || text_ends(joined, ",")) {
		free(joined);
		return NULL;
	}
	return joined;
}

static const char *nothing(void *context, const char *name)
{
	(void)context;
	(void)name;
	return NULL;
}

/* What enroot would say on the node: flags that nobody knows, a destination above the container's root. */
static int check_line(const char *line, const char *mount, struct jail_error *err)
{
	const struct expand_request variables = { EXPAND_BRACES, nothing, NULL };
	struct fstab_entry entry = { 0 };
	int found = fstab_parse(line, &variables, &entry, err);

	fstab_entry_free(&entry);
	if (found > 0)
		return 0;
	/* "Invalid cross-device link": scripts look for the kernel's words. */
	const char *call = err->number ? strerrordesc_np(err->number) : NULL;
	scoped_free char *reason = text_format("%s%s%s", call ? call : "", call ? ": " : "", err->message);
	return jail_fail(err, NULL, 0, "\"%s\": %s", mount, reason);
}

char *pyxis_mount_line(const char *mount, char **source, struct jail_error *err)
{
	scoped_free char *copy = text_copy(mount, strlen(mount));
	char *rest = copy, *from = strsep(&rest, ":"), *to = strsep(&rest, ":"), *flags = strsep(&rest, ":");
	const char *type, *options;

	*source = NULL;
	if (rest)
		return wrong(mount, "there is more behind the flags", err);
	if (is_path(from)) {
		type = "none";
		options = "x-create=auto,rbind";
	} else if (!strcmp(from, "tmpfs")) {
		type = "tmpfs";
		options = "x-create=dir";
	} else if (!strcmp(from, "umount")) {
		type = "none";
		options = "x-detach";
	} else {
		return wrong(mount, *from ? "the source is a path that begins with . or /, or tmpfs, or umount"
			     : "the source is empty", err);
	}
	if (!to)
		to = from;
	if (!is_path(to))
		return wrong(mount, "the destination begins with . or /", err);
	scoped_free char *more = flags ? join_flags(flags) : text_copy("", 0);
	if (!more)
		return wrong(mount, "a flag is empty or holds a blank", err);
	scoped_free char *first = fstab_field(from);
	scoped_free char *second = fstab_field(to);
	char *line = text_format("%s %s %s %s%s", first, second, type, options, more);
	if (check_line(line, mount, err)) {
		free(line);
		return NULL;
	}
	if (from[0] == '/')
		*source = text_copy(from, strlen(from));
	return line;
}
