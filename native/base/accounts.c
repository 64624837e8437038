/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the passwd and group files of a jail or container as text. The C library would do it through NSS modules,
 * which it would load as nsswitch.conf in the jail says: a file that users write. enroot/container and
 * spank_jail/enter call it. */
#define _GNU_SOURCE
#include "accounts.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "scoped.h"
#include "sys.h"

/* A group file of a large site has some megabytes; a user could make it endless. As jail-accounts takes them. */
#define FILE_MAX_BYTES (16L * 1024 * 1024)

/* A number of a whole field, as passwd(5) means it. */
static bool parse_id(const char *text, unsigned *id)
{
	char *end;

	if (*text < '0' || *text > '9')
		return false;
	errno = 0;
	unsigned long value = strtoul(text, &end, 10);
	if (errno || *end || value >= 0xffffffffUL)
		return false;
	*id = (unsigned)value;
	return true;
}

/* Splits a line at its colons, in place. Returns the number of fields found, at most `n`. */
static int split(char *line, char **fields, int n)
{
	int found = 0;

	while (found < n && (fields[found] = strsep(&line, ":")))
		found++;
	return found;
}

static int copy_field(char *to, size_t size, const char *from, const char *what, struct jail_error *err)
{
	if ((size_t)snprintf(to, size, "%s", from) >= size)
		return jail_fail(err, NULL, 0, "the user's %s in the jail's passwd file is too long", what);
	return 0;
}

static int fill(char **fields, struct jail_account *account, struct jail_error *err)
{
	unsigned uid, gid;

	if (!parse_id(fields[2], &uid) || !parse_id(fields[3], &gid))
		return jail_fail(err, NULL, 0, "the user's uid or gid in the jail's passwd file is no number");
	account->uid = uid;
	account->gid = gid;
	if (copy_field(account->name, sizeof(account->name), fields[0], "name", err) ||
	    copy_field(account->home, sizeof(account->home), fields[5][0] ? fields[5] : "/", "home", err) ||
	    copy_field(account->shell, sizeof(account->shell), fields[6][0] ? fields[6] : "/bin/sh", "shell", err))
		return -1;
	return 0;
}

static int find_user(char *passwd, const char *user, struct jail_account *account, struct jail_error *err)
{
	unsigned wanted = 0, uid;
	bool by_number = parse_id(user, &wanted);
	char *line, *fields[8];

	while ((line = strsep(&passwd, "\n"))) {
		if (split(line, fields, 8) != 7 || !fields[0][0])
			continue;
		if (strcmp(fields[0], user) && !(by_number && parse_id(fields[2], &uid) && uid == wanted))
			continue;
		return fill(fields, account, err);
	}
	return jail_fail(err, NULL, 0, "no such user in the jail's /etc/passwd; add it there with useradd");
}

static bool is_member(char *members, const char *name)
{
	char *member;

	while ((member = strsep(&members, ",")))
		if (!strcmp(member, name))
			return true;
	return false;
}

static bool has_group(const struct jail_account *account, gid_t gid)
{
	for (size_t i = 0; i < account->n_groups; i++)
		if (account->groups[i] == gid)
			return true;
	return false;
}

static int find_groups(char *group, struct jail_account *account, struct jail_error *err)
{
	char *line, *fields[5];
	unsigned gid;

	account->groups[0] = account->gid;
	account->n_groups = 1;
	while ((line = strsep(&group, "\n"))) {
		if (split(line, fields, 5) != 4 || !parse_id(fields[2], &gid) || !is_member(fields[3], account->name) ||
		    has_group(account, gid))
			continue;
		if (account->n_groups == JAIL_MAX_GROUPS)
			return jail_fail(err, NULL, 0, "the user is in more than %d groups", JAIL_MAX_GROUPS);
		account->groups[account->n_groups++] = gid;
	}
	return 0;
}

int jail_account_parse(char *passwd, char *group, const char *user, struct jail_account *account,
		       struct jail_error *err)
{
	if (find_user(passwd, user, account, err) || find_groups(group, account, err))
		return jail_error_at(err, NULL, 0, user);
	return 0;
}

/* Only a regular file; a FIFO, or who holds a lease on it (fcntl(2)), is not waited for. The jail's root is mounted
 * nodev. Returns a descriptor or -1. */
static int open_regular(int root, const char *path, struct stat *st, struct jail_error *err)
{
	const int flags = O_RDONLY | O_NONBLOCK | O_NOCTTY;
	scoped_fd fd = sys_openat2(root, path, flags, RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS);

	if (fd < 0 || fstat(fd, st))
		return jail_fail(err, fd < 0 ? "openat2" : "fstat", errno, "cannot read the jail's account file");
	if (!S_ISREG(st->st_mode) || st->st_size > FILE_MAX_BYTES)
		return jail_fail(err, NULL, 0, "the jail's account file must be a regular file of at most 16 MiB");
	return jail_keep(&fd);
}

/* The whole file, or NULL. */
static char *read_whole(int root, const char *path, struct jail_error *err)
{
	struct stat st;
	size_t length = 0;
	scoped_fd fd = open_regular(root, path, &st, err);

	if (fd < 0) {
		jail_error_at(err, NULL, 0, path);
		return NULL;
	}
	char *text = malloc((size_t)st.st_size + 1);
	while (text && length < (size_t)st.st_size) {
		ssize_t got = read(fd, text + length, (size_t)st.st_size - length);
		if (got <= 0)
			break;
		length += (size_t)got;
	}
	if (text)
		text[length] = '\0';
	else
		jail_fail(err, "malloc", ENOMEM, "not enough memory to read %s", path);
	return text;
}

int jail_account_find(int root, const char *user, struct jail_account *account, struct jail_error *err)
{
	scoped_free char *passwd = read_whole(root, "/etc/passwd", err);
	if (!passwd)
		return -1;
	scoped_free char *group = read_whole(root, "/etc/group", err);
	if (!group)
		return -1;
	return jail_account_parse(passwd, group, user, account, err);
}

int jail_account_become(const struct jail_account *account, struct jail_error *err)
{
	if (setgroups(account->n_groups, account->groups))
		return jail_fail(err, "setgroups", errno, "cannot take the user's groups; only root can");
	if (setresgid(account->gid, account->gid, account->gid))
		return jail_fail(err, "setresgid", errno, "cannot take gid %u", (unsigned)account->gid);
	if (setresuid(account->uid, account->uid, account->uid))
		return jail_fail(err, "setresuid", errno, "cannot take uid %u", (unsigned)account->uid);
	if (account->uid && !setuid(0))
		return jail_fail(err, NULL, 0, "root could be taken back after becoming uid %u", (unsigned)account->uid);
	return 0;
}
