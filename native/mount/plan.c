/* SPDX-License-Identifier: Apache-2.0 */
/* Parses the mount plan, a file in the form of fstab(5). Files of this folder, other libraries in native/ and
 * spank_jail/ call it. */
#define _GNU_SOURCE
#include "plan.h"

#include <fcntl.h>
#include <mntent.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "device_name.h"
#include "native/base/scoped.h"
#include "native/base/sys.h"

/* getmntent_r cuts longer lines without a word. */
#define LINE_MAX_BYTES 4000
/* A plan is a page of text; more means that the wrong file was named. */
#define FILE_MAX_BYTES (1024 * 1024)

static void entry_free(struct jail_entry *entry)
{
	free(entry->source);
	free(entry->target);
	free(entry->options);
}

void jail_plan_free(struct jail_plan *plan)
{
	for (size_t i = 0; i < plan->n_entries; i++)
		entry_free(&plan->entries[i]);
	free(plan->entries);
	free(plan->file);
	memset(plan, 0, sizeof(*plan));
}

static int check_target(const struct jail_entry *entry, struct jail_error *err)
{
	const char *target = entry->target;

	if (entry->type == JAIL_CDI) /* no path */
		return jail_cdi_name_check(target, err);
	if (target[0] != '/')
		return jail_fail(err, NULL, 0, "the target must be an absolute path in the jail");
	if (strspn(target, "/") == strlen(target))
		return jail_fail(err, NULL, 0, "the target cannot be / itself: the jail root is given by root=");
	for (const char *part = target; part; part = strchr(part, '/')) {
		part += strspn(part, "/");
		size_t length = strcspn(part, "/");
		if (length == 2 && !strncmp(part, "..", 2))
			return jail_fail(err, NULL, 0, "the target must not contain \"..\"; write the real path");
	}
	return 0;
}

static int check_source(const struct jail_entry *entry, struct jail_error *err)
{
	bool bind = entry->type == JAIL_BIND || entry->type == JAIL_RBIND;

	for (size_t i = 0; entry->type == JAIL_CDI && i < entry->n_parameters; i++)
		if (entry->parameters[i].value[0] != '/')
			return jail_fail(err, NULL, 0, "spec-dir takes an absolute path of the node");
	if (bind && entry->source[0] != '/')
		return jail_fail(err, NULL, 0, "the source \"%s\" of a bind must be an absolute path of the node",
				 entry->source);
	return 0;
}

static size_t count_fields(const char *line)
{
	size_t fields = 0;

	for (line += strspn(line, " \t"); *line && *line != '#'; line += strspn(line, " \t")) {
		fields++;
		line += strcspn(line, " \t");
	}
	return fields;
}

/* `line`: one line without its newline, not blank and no comment; writable. */
static int parse_line(char *line, struct jail_entry *entry, struct jail_error *err)
{
	char buffer[LINE_MAX_BYTES + 96];
	struct mntent found;
	size_t fields = count_fields(line);

	if (fields < 4)
		return jail_fail(err, NULL, 0,
				 "expected \"source target type options\", found %zu field%s; write "
				 "\"defaults\" where there are no options, and \\040 for a space in a path",
				 fields, fields == 1 ? "" : "s");
	if (fields > 6)
		return jail_fail(err, NULL, 0, "expected at most six fields, found %zu; write \\040 for a "
				 "space in a path", fields);
	FILE *stream = fmemopen(line, strlen(line), "r");
	if (!stream)
		return jail_fail(err, "fmemopen", errno, "not enough memory to read the plan");
	bool got = getmntent_r(stream, &found, buffer, sizeof(buffer)) != NULL;
	fclose(stream);
	if (!got)
		return jail_fail(err, NULL, 0, "the line is not in fstab(5) form");
	entry->source = strdup(found.mnt_fsname);
	entry->target = strdup(found.mnt_dir);
	entry->options = strdup(found.mnt_opts);
	if (!entry->source || !entry->target || !entry->options)
		return jail_fail(err, "strdup", ENOMEM, "not enough memory to read the plan");
	if (jail_options_parse(found.mnt_type, entry, err) || check_source(entry, err) || check_target(entry, err))
		return jail_error_at(err, NULL, 0, entry->target);
	return 0;
}

int jail_plan_append(struct jail_plan *plan, const struct jail_entry *entry, struct jail_error *err)
{
	if (plan->n_entries == JAIL_MAX_ENTRIES)
		return jail_fail(err, NULL, 0, "more than %d entries: is this the plan?", JAIL_MAX_ENTRIES);
	/* Grow at powers of two, from 16. */
	if (plan->n_entries == 0 || (plan->n_entries >= 16 && !(plan->n_entries & (plan->n_entries - 1)))) {
		size_t capacity = plan->n_entries ? plan->n_entries * 2 : 16;
		struct jail_entry *grown = realloc(plan->entries, capacity * sizeof(*grown));
		if (!grown)
			return jail_fail(err, "realloc", ENOMEM, "not enough memory to read the plan");
		plan->entries = grown;
	}
	plan->entries[plan->n_entries++] = *entry;
	return 0;
}

static int parse_lines(char *text, struct jail_plan *plan, struct jail_error *err)
{
	int number = 1;
	char *next;

	for (char *line = text; line; line = next, number++) {
		struct jail_entry entry = { .line = number };

		next = strchr(line, '\n');
		if (next)
			*next++ = '\0';
		line += strspn(line, " \t");
		if (!*line || *line == '#')
			continue;
		int failed = strlen(line) > LINE_MAX_BYTES
			? jail_fail(err, NULL, 0, "the line is longer than %d bytes", LINE_MAX_BYTES)
			: parse_line(line, &entry, err);
		if (failed || jail_plan_append(plan, &entry, err)) {
			entry_free(&entry);
			return jail_error_at(err, plan->file, number, NULL);
		}
	}
	return 0;
}

int jail_plan_parse(const char *text, size_t length, const char *name, struct jail_plan *plan,
		    struct jail_error *err)
{
	scoped_free char *copy = NULL;

	memset(plan, 0, sizeof(*plan));
	plan->file = strdup(name);
	copy = malloc(length + 1);
	if (!copy || !plan->file) {
		jail_plan_free(plan);
		return jail_fail(err, "malloc", ENOMEM, "not enough memory to read the plan");
	}
	memcpy(copy, text, length);
	copy[length] = '\0';
	const char *zero = memchr(text, '\0', length);
	if (zero) {
		jail_plan_free(plan);
		jail_fail(err, NULL, 0, "the plan holds a zero byte at offset %zu: it is not a text file",
			  (size_t)(zero - text));
		return jail_error_at(err, name, 0, NULL);
	}
	if (parse_lines(copy, plan, err)) {
		jail_plan_free(plan);
		return -1;
	}
	return 0;
}

int jail_plan_read_fd(int fd, const char *name, struct jail_plan *plan, struct jail_error *err)
{
	scoped_free char *text = NULL;
	struct stat st;
	size_t length = 0;

	memset(plan, 0, sizeof(*plan));
	if (sys_fstat(fd, &st))
		return jail_fail(err, "fstat", errno, "cannot read the mount plan"), jail_error_at(err, name, 0, NULL);
	if (!S_ISREG(st.st_mode) || st.st_size > FILE_MAX_BYTES)
		return jail_fail(err, NULL, 0, "the mount plan must be a regular file of at most %d bytes",
				 FILE_MAX_BYTES), jail_error_at(err, name, 0, NULL);
	text = malloc((size_t)st.st_size + 1);
	if (!text)
		return jail_fail(err, "malloc", ENOMEM, "not enough memory to read the plan");
	while (length < (size_t)st.st_size) {
		ssize_t got = sys_pread(fd, text + length, (size_t)st.st_size - length, (off_t)length);
		if (got < 0)
			return jail_fail(err, "pread", errno, "cannot read the mount plan"),
			       jail_error_at(err, name, 0, NULL);
		if (got == 0)
			break;
		length += (size_t)got;
	}
	return jail_plan_parse(text, length, name, plan, err);
}

int jail_plan_read(const char *path, struct jail_plan *plan, struct jail_error *err)
{
	scoped_fd fd = sys_open(path, O_RDONLY | O_NONBLOCK);

	memset(plan, 0, sizeof(*plan));
	if (fd < 0) {
		jail_fail(err, "open", errno, "cannot read the mount plan; name it with plan=PATH or --plan PATH");
		return jail_error_at(err, path, 0, NULL);
	}
	return jail_plan_read_fd(fd, path, plan, err);
}

/* Whether `path` is `directory` or below it; "//" counts as "/". */
static bool is_within(const char *path, const char *directory)
{
	for (;;) {
		path += strspn(path, "/");
		directory += strspn(directory, "/");
		size_t length = strcspn(directory, "/");
		if (!length)
			return true;
		if (strcspn(path, "/") != length || strncmp(path, directory, length))
			return false;
		path += length;
		directory += length;
	}
}

bool jail_plan_is_of_proc(const struct jail_plan *plan, const struct jail_entry *entry)
{
	for (size_t i = 0; i < plan->n_entries; i++)
		if (plan->entries[i].type == JAIL_PROC && is_within(entry->target, plan->entries[i].target))
			return true;
	return false;
}

bool jail_entry_is_shared(const struct jail_entry *entry)
{
	return (entry->type == JAIL_TMPFS || entry->type == JAIL_DEV) && entry->scope == JAIL_SCOPE_JOB;
}
