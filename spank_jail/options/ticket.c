/* SPDX-License-Identifier: Apache-2.0 */
/* Makes and checks tickets: files that prove that a job was submitted from outside the jail, so that it may run there
 * (--no-jail). option_input.c calls it. */
#define _GNU_SOURCE
#include "ticket.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "native/base/scoped.h"
#include "native/base/sys.h"
#include "native/base/trust.h"

/* Leads nowhere. */
#define CONTENT "ticket"
#define CLAIM_SIZE (JAIL_TICKET_SIZE + 8)

static void claim_name(const char *name, char claim[CLAIM_SIZE])
{
	snprintf(claim, CLAIM_SIZE, "%.32s.used", name);
}

/* DIRECTORY/UID, which must be that user's alone: whoever can write there is believed to be him. */
static int open_folder(const char *directory, uid_t uid, struct jail_error *err)
{
	char name[16];
	struct stat st;

	scoped_fd all = jail_open_trusted(directory, 1, "directory of tickets", err);
	if (all < 0) {
		if (err->number == ENOENT)
			return jail_fail(err, "open", ENOENT, "no-jail-tickets=%s is not here: inside the jail, it cannot be "
					 "had; outside, mount that volume", directory);
		return -1;
	}
	snprintf(name, sizeof(name), "%u", (unsigned)uid);
	scoped_fd folder = openat(all, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (folder < 0 || fstat(folder, &st))
		return jail_fail(err, "open", errno, "cannot open \"%s/%s\"; the administrator makes it with: "
				 "install -d -m 700 -o %s %s/%s", directory, name, name, directory, name);
	if (st.st_uid != uid || (st.st_mode & 077))
		return jail_fail(err, NULL, 0, "\"%s/%s\" must belong to uid %s and have mode 0700", directory, name, name);
	return jail_keep(&folder);
}

static bool expired(const struct stat *st)
{
	return st->st_mtime + JAIL_TICKET_SECONDS < time(NULL);
}

static void sweep(int folder)
{
	struct dirent *entry;
	struct stat st;
	int copy = dup(folder);
	DIR *list = copy < 0 ? NULL : fdopendir(copy);

	if (!list) {
		jail_close(&copy);
		return;
	}
	while ((entry = readdir(list)))
		if (entry->d_name[0] != '.' && !fstatat(folder, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) && expired(&st))
			(void)unlinkat(folder, entry->d_name, 0);
	closedir(list);
}

int jail_ticket_make(const char *directory, char name[JAIL_TICKET_SIZE], struct jail_error *err)
{
	unsigned char bytes[16];
	scoped_fd folder = open_folder(directory, geteuid(), err);

	if (folder < 0)
		return -1;
	sweep(folder);
	if (getrandom(bytes, sizeof(bytes), 0) != sizeof(bytes))
		return jail_fail(err, "getrandom", errno, "cannot make a ticket");
	for (size_t i = 0; i < sizeof(bytes); i++)
		snprintf(name + 2 * i, 3, "%02x", bytes[i]);
	if (sys_symlinkat(CONTENT, folder, name))
		return jail_fail(err, "symlinkat", errno, "cannot make a ticket in \"%s/%u\"", directory,
				 (unsigned)geteuid());
	return 0;
}

void jail_ticket_drop(const char *directory, const char *name)
{
	struct jail_error err;
	char claim[CLAIM_SIZE];
	scoped_fd folder = open_folder(directory, geteuid(), &err);

	if (folder < 0)
		return;
	claim_name(name, claim);
	(void)unlinkat(folder, name, 0);
	(void)unlinkat(folder, claim, 0);
}

static int check_ticket(int folder, uid_t uid, const char *name, struct jail_error *err)
{
	struct stat st;

	if (strlen(name) != JAIL_TICKET_SIZE - 1 || strspn(name, "0123456789abcdef") != JAIL_TICKET_SIZE - 1)
		return jail_fail(err, NULL, 0, "the job brings no ticket: it was not submitted from outside the jail");
	if (fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW))
		return jail_fail(err, "fstatat", errno, "the job's ticket is not known: submit it again, from outside "
				 "the jail");
	if (!S_ISLNK(st.st_mode) || st.st_uid != uid)
		return jail_fail(err, NULL, 0, "the job's ticket is not a link of uid %u", (unsigned)uid);
	if (expired(&st))
		return jail_fail(err, NULL, 0, "the job's ticket is older than %d days: submit it again",
				 JAIL_TICKET_SECONDS / (24 * 3600));
	return 0;
}

int jail_ticket_claim(const char *directory, uid_t uid, const char *name, const char *claimant,
		      struct jail_error *err)
{
	char claim[CLAIM_SIZE], found[64];
	scoped_fd folder = open_folder(directory, uid, err);

	if (folder < 0 || check_ticket(folder, uid, name, err))
		return -1;
	claim_name(name, claim);
	/* A symlink comes into being with its content: two nodes of one step, and two jobs, cannot meet halfway. */
	if (!sys_symlinkat(claimant, folder, claim))
		return 0;
	if (errno != EEXIST)
		return jail_fail(err, "symlinkat", errno, "the job's ticket cannot be marked as used");
	ssize_t length = readlinkat(folder, claim, found, sizeof(found) - 1);
	if (length < 0)
		return jail_fail(err, "readlinkat", errno, "cannot tell who used the job's ticket");
	found[length] = '\0';
	if (strcmp(found, claimant))
		return jail_fail(err, NULL, 0, "the job's ticket was used by %s already, and serves once", found);
	return 0;
}
