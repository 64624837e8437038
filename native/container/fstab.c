/* SPDX-License-Identifier: Apache-2.0 */
/* Parses lines in the form of fstab(5), with enroot's extensions, which say what is mounted into a container.
 * enroot/container, enroot/hooks, pyxis/options and pyxis/step call it. */
#define _GNU_SOURCE
#include "fstab.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "native/base/scoped.h"
#include "native/base/sys.h"

#define MAX_FIELDS 6
#define MS_UNBINDABLE_BIT (1 << 17)

static const struct { const char *name; uint64_t set, clear; } attributes[] = {
	{ "ro", MOUNT_ATTR_RDONLY, 0 },
	{ "rw", 0, MOUNT_ATTR_RDONLY },
	{ "nosuid", MOUNT_ATTR_NOSUID, 0 },
	{ "suid", 0, MOUNT_ATTR_NOSUID },
	{ "nodev", MOUNT_ATTR_NODEV, 0 },
	{ "dev", 0, MOUNT_ATTR_NODEV },
	{ "noexec", MOUNT_ATTR_NOEXEC, 0 },
	{ "exec", 0, MOUNT_ATTR_NOEXEC },
	{ "nodiratime", MOUNT_ATTR_NODIRATIME, 0 },
	{ "diratime", 0, MOUNT_ATTR_NODIRATIME },
	{ "noatime", MOUNT_ATTR_NOATIME, MOUNT_ATTR__ATIME },
	{ "strictatime", MOUNT_ATTR_STRICTATIME, MOUNT_ATTR__ATIME },
	{ "relatime", 0, MOUNT_ATTR__ATIME },
	{ "nosymfollow", MOUNT_ATTR_NOSYMFOLLOW, 0 },
};

static const struct { const char *name; uint64_t flag; } propagations[] = {
	{ "private", JAIL_MS_PRIVATE },
	{ "slave", JAIL_MS_SLAVE },
	{ "shared", JAIL_MS_SHARED },
	{ "unbindable", MS_UNBINDABLE_BIT },
};

/* What fstab(5) and mount(8) know and a container has no use for. */
static const char *const ignored_options[] = {
	"defaults", "auto", "noauto", "user", "nouser", "users", "loud", "_netdev", "group", "nogroup", "owner", "noowner", "async",
	"lazytime", "nolazytime", "norelatime", "nostrictatime", "iversion", "noiversion", "mand", "nomand",
};

static bool is_one_of(const char *word, const char *const *names, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!strcmp(word, names[i]))
			return true;
	return false;
}

static int parse_create(const char *value, struct fstab_entry *entry, struct jail_error *err)
{
	if (!strcmp(value, "dir"))
		entry->create = FSTAB_CREATE_DIR;
	else if (!strcmp(value, "file"))
		entry->create = FSTAB_CREATE_FILE;
	else if (!strcmp(value, "auto"))
		entry->create = FSTAB_CREATE_AUTO;
	else
		return jail_fail(err, NULL, 0, "x-create=%.32s: it takes dir, file or auto", value);
	return 0;
}

/* Whether the option was an attribute or a propagation of the mount. */
static bool parse_flag(const char *option, struct fstab_entry *entry)
{
	for (size_t i = 0; i < sizeof(attributes) / sizeof(attributes[0]); i++)
		if (!strcmp(option, attributes[i].name)) {
			entry->set = (entry->set & ~attributes[i].clear) | attributes[i].set;
			entry->clear = (entry->clear & ~attributes[i].set) | attributes[i].clear;
			return true;
		}
	for (size_t i = 0; i < sizeof(propagations) / sizeof(propagations[0]); i++) {
		bool deep = option[0] == 'r' && !strcmp(option + 1, propagations[i].name);
		if (deep || !strcmp(option, propagations[i].name)) {
			entry->propagation = propagations[i].flag;
			entry->propagation_recursive = deep;
			return true;
		}
	}
	return false;
}

static int parse_option(char *option, struct fstab_entry *entry, bool *remount, struct jail_error *err)
{
	if (!*option || parse_flag(option, entry) ||
	    is_one_of(option, ignored_options, sizeof(ignored_options) / sizeof(ignored_options[0])))
		return 0;
	if (!strcmp(option, "bind") || !strcmp(option, "rbind")) {
		entry->action = FSTAB_BIND;
		entry->recursive = option[0] == 'r';
	} else if (!strcmp(option, "remount")) {
		*remount = true;
	} else if (!strcmp(option, "x-move") || !strcmp(option, "move")) {
		entry->action = FSTAB_MOVE;
	} else if (!strcmp(option, "x-detach")) {
		entry->action = FSTAB_DETACH;
	} else if (!strcmp(option, "nofail")) {
		entry->nofail = true;
	} else if (!strcmp(option, "silent")) {
		entry->silent = true;
	} else if (text_starts(option, "x-create=")) {
		return parse_create(option + strlen("x-create="), entry, err);
	} else if (text_starts(option, "x-") || text_starts(option, "X-") || text_starts(option, "comment=")) {
		return 0; /* other programs' */
	} else if (entry->n_data == FSTAB_MAX_DATA) {
		return jail_fail(err, NULL, 0, "more than %d options for the file system", FSTAB_MAX_DATA);
	} else {
		entry->data[entry->n_data++] = option;
	}
	return 0;
}

static int parse_options(char *options, struct fstab_entry *entry, struct jail_error *err)
{
	bool remount = false;

	for (char *rest = options, *option; (option = strsep(&rest, ","));)
		if (parse_option(option, entry, &remount, err))
			return -1;
	if (remount)
		entry->action = FSTAB_REMOUNT;
	if (entry->action == FSTAB_BIND && entry->n_data)
		return jail_fail(err, NULL, 0, "\"%.64s\" is no option of a bind mount", entry->data[0]);
	return 0;
}

/* \040 and its kind, in place. */
static void unescape(char *text)
{
	char *out = text;

	while (*text) {
		if (text[0] == '\\' && text[1] >= '0' && text[1] <= '3' && text[2] >= '0' && text[2] <= '7' &&
		    text[3] >= '0' && text[3] <= '7') {
			char c = (char)((text[1] - '0') * 64 + (text[2] - '0') * 8 + (text[3] - '0'));
			*out++ = c ? c : '?';
			text += 4;
		} else {
			*out++ = *text++;
		}
	}
	*out = '\0';
}

static bool is_path(const char *word)
{
	return word[0] == '/' || word[0] == '.';
}

static bool is_number(const char *word)
{
	size_t sign = word[0] == '-' || word[0] == '+';

	return word[sign] && !word[sign + strspn(word + sign, "0123456789")];
}

static bool is_type(const char *word)
{
	static const char *const types[] = {
		"none", "auto", "tmpfs", "proc", "sysfs", "devpts", "mqueue", "cgroup", "cgroup2", "overlay", "fuse", "ramfs",
		"bpf", "binfmt_misc", "devtmpfs", "securityfs", "tracefs", "debugfs", "hugetlbfs", "configfs", "fusectl",
		"efivarfs", "pstore", "ext2", "ext3", "ext4", "xfs", "btrfs", "vfat", "iso9660", "squashfs", "erofs", "nfs",
		"nfs4", "cifs", "9p", "virtiofs", "lustre", "ceph", "gpfs", "beegfs",
	};

	return is_one_of(word, types, sizeof(types) / sizeof(types[0])) || text_starts(word, "fuse.");
}

/* Tells the fields apart where some are left out: SOURCE [TARGET] [TYPE] [OPTIONS] [FREQ [PASS]]. */
static int assign(char **fields, size_t n, struct fstab_entry *entry, struct jail_error *err)
{
	size_t at = 1;
	char *options = NULL;

	entry->source = fields[0];
	if (at < n && is_path(fields[at]))
		entry->target = fields[at++];
	/* Before other options only a type may stand, whatever it is called. */
	if (at < n && (is_type(fields[at]) || (at + 1 < n && !is_number(fields[at]) && !is_number(fields[at + 1]))))
		entry->type = fields[at++];
	if (at < n && !is_number(fields[at]))
		options = fields[at++];
	for (; at < n; at++) {
		if (!is_number(fields[at]))
			return jail_fail(err, NULL, 0, "\"%.64s\" is not expected there; fields are source, target, type, options, "
					 "freq, pass, in this order", fields[at]);
		/* The last one decides: pass, or freq alone. */
		entry->pass = atoi(fields[at]);
	}
	if (options && parse_options(options, entry, err))
		return -1;
	if (!options && entry->action == FSTAB_MOUNT)
		entry->create = FSTAB_CREATE_AUTO;
	if (!entry->target && is_path(entry->source)) {
		entry->target = entry->source;
		if (entry->create == FSTAB_CREATE_NONE)
			entry->create = FSTAB_CREATE_AUTO;
	}
	if (!entry->target)
		return jail_fail(err, NULL, 0, "\"%.64s\": it says not where to mount it", entry->source);
	bool typed = entry->type && strcmp(entry->type, "none") && strcmp(entry->type, "auto");
	if (entry->action == FSTAB_MOUNT && !typed) {
		bool named = strcmp(entry->source, "none") && strcmp(entry->source, "auto");
		if (named && !is_path(entry->source) && is_type(entry->source)) {
			entry->type = entry->source;
		} else if (is_path(entry->source)) {
			entry->action = FSTAB_BIND;
			entry->recursive = true;
			/* Options such as ro without bind: they are the bind's. */
			if (entry->n_data)
				return jail_fail(err, NULL, 0, "\"%.64s\" is no option of a bind mount", entry->data[0]);
		} else if (entry->propagation || entry->set || entry->clear) {
			entry->action = FSTAB_REMOUNT; /* "none / none rprivate" */
		} else {
			return jail_fail(err, NULL, 0, "\"%.64s\" is no path and no type of file system", entry->source);
		}
	}
	if (!fstab_target_is_inside(entry->target)) {
		jail_fail(err, "mount", EXDEV, "the target lies above the container's root");
		return jail_error_at(err, NULL, 0, entry->target);
	}
	return 1;
}

bool fstab_target_is_inside(const char *target)
{
	int depth = 0;

	for (const char *part = target + strspn(target, "/"); *part; part += strspn(part, "/")) {
		size_t length = strcspn(part, "/");
		if (length == 2 && part[0] == '.' && part[1] == '.')
			depth--;
		else if (length != 1 || part[0] != '.')
			depth++;
		if (depth < 0)
			return false;
		part += length;
	}
	return true;
}

int fstab_parse(const char *line, const struct expand_request *variables, struct fstab_entry *entry,
		struct jail_error *err)
{
	char *fields[MAX_FIELDS] = { NULL };
	size_t n = 0;

	*entry = (struct fstab_entry){ 0 };
	line += strspn(line, " \t\r");
	if (!*line || *line == '#')
		return 0;
	/* Fields first, values then: a value may hold blanks. */
	scoped_free char *copy = text_copy(line, strlen(line));
	scoped_buffer storage = { 0 };
	size_t offsets[MAX_FIELDS];
	for (char *word, *rest = copy; (word = strsep(&rest, " \t\r"));) {
		if (!*word)
			continue;
		if (n == MAX_FIELDS)
			return jail_fail(err, NULL, 0, "more than %d fields; a blank within one is written \\040", MAX_FIELDS);
		scoped_free char *value = expand(word, variables, err);
		if (!value)
			return -1;
		unescape(value);
		offsets[n++] = storage.length;
		text_append(&storage, value, strlen(value) + 1);
	}
	if (!n)
		return 0;
	entry->storage = storage.text;
	storage.text = NULL;
	for (size_t i = 0; i < n; i++) {
		fields[i] = entry->storage + offsets[i];
		if (!fields[i][0]) {
			fstab_entry_free(entry);
			return jail_fail(err, NULL, 0, "field %zu is empty: its variable is not set", i + 1);
		}
	}
	int result = assign(fields, n, entry, err);
	if (result < 0)
		fstab_entry_free(entry);
	return result;
}

char *fstab_field(const char *path)
{
	struct text_buffer out = { 0 };

	text_append(&out, "", 0);
	for (; *path; path++) {
		if (strchr(" \t\r\n\\$", *path)) {
			scoped_free char *octal = text_format("\\%03o", (unsigned)(unsigned char)*path);
			text_append_string(&out, octal);
		} else {
			text_append(&out, path, 1);
		}
	}
	return out.text;
}

void fstab_entry_free(struct fstab_entry *entry)
{
	free(entry->storage);
	entry->storage = NULL;
}
