#define _GNU_SOURCE
#include <grp.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>

#include "../../spank_jail/core/scoped.h"
#include "hook.h"

/* The line of `name` in a file of accounts, or NULL. The caller frees it. */
static char *line_of(const char *text, const char *name)
{
	size_t length = strlen(name);

	for (const char *line = text; *line; line += strcspn(line, "\n"), line += *line == '\n')
		if (!strncmp(line, name, length) && line[length] == ':')
			return text_copy(line, strcspn(line, "\n"));
	return NULL;
}

static void append(struct text_buffer *out, const char *line)
{
	text_append_string(out, line);
	text_append(out, "\n", 1);
}

/* `first`, then what `text` has of other names. */
static void merge(struct text_buffer *out, const struct text_list *first, const char *text)
{
	for (size_t i = 0; i < first->n; i++)
		append(out, first->items[i]);
	for (const char *line = text; *line; line += strcspn(line, "\n"), line += *line == '\n') {
		size_t name = strcspn(line, ":\n");
		bool known = false;
		for (size_t i = 0; i < first->n && !known; i++)
			known = strcspn(first->items[i], ":") == name && !strncmp(first->items[i], line, name);
		if (!known && name) {
			text_append(out, line, strcspn(line, "\n"));
			text_append(out, "\n", 1);
		}
	}
}

/* The container's own line where it has one. */
static void add_known(struct text_list *first, const char *text, const char *name, const char *otherwise)
{
	char *line = line_of(text, name);

	if (line)
		text_list_take(first, line);
	else
		text_list_add(first, otherwise);
}

static const char *shell(const struct container *container)
{
	if (container->shell && hook_there(container, container->shell))
		return container->shell;
	return hook_there(container, "/bin/bash") ? "/bin/bash" : "/bin/sh";
}

static int write_passwd(struct container *container, struct jail_error *err)
{
	scoped_free char *now = hook_read(container, "/etc/passwd");
	scoped_list first = { 0 };
	scoped_buffer text = { 0 };

	add_known(&first, now, "root", "root:x:0:0:root:/root:/bin/sh");
	add_known(&first, now, "nobody", "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin");
	if (container->uid)
		text_list_take(&first, text_format("%s:x:%u:%u::%s:%s", container->user, (unsigned)container->uid,
						   (unsigned)container->gid, container->home, shell(container)));
	merge(&text, &first, now);
	return hook_write(container, "/etc", "passwd", text.text, err);
}

static int write_group(struct container *container, struct jail_error *err)
{
	scoped_free char *now = hook_read(container, "/etc/group");
	const struct group *own = getgrgid(container->gid);
	scoped_list first = { 0 };
	scoped_buffer text = { 0 };

	add_known(&first, now, "root", "root:x:0:");
	/* Debian's name for it; others call it nobody. */
	add_known(&first, now, "nogroup", "nogroup:x:65534:");
	if (container->gid)
		text_list_take(&first, text_format("%s:x:%u:", own ? own->gr_name : container->user,
						   (unsigned)container->gid));
	merge(&text, &first, now);
	return hook_write(container, "/etc", "group", text.text, err);
}

int hook_shadow(struct container *container, struct jail_error *err)
{
	return write_passwd(container, err) || write_group(container, err) ? -1 : 0;
}
