/* SPDX-License-Identifier: Apache-2.0 */
/* Opens or makes one store, the directory of the cache in which one user alone can write. all_stores.c decides which
 * stores there are; image.c and blob.c know what is in one. draft.c, entry.c and all_stores.c call it. */
#define _GNU_SOURCE
#include "store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "native/base/scoped.h"
#include "native/base/trust.h"

/* Names read in a directory that is everybody's: whoever fills it delays others by no more than that. */
#define MOST_NAMES 65536
/* A smaller file is read in a second, whatever it is made of. */
#define HOLLOW_SIZE ((off_t)1 << 30)
#define HOLLOW_RATIO 256
#define WRITABLE_BY_OTHERS (S_IWGRP | S_IWOTH) /* an access list shows as the group's */

static int fail_at(const char *path, const char *call, int number, const char *message, struct jail_error *err)
{
	jail_fail(err, call, number, "%s", message);
	return jail_error_at(err, NULL, 0, path);
}

static bool trusted(const struct stat *st, uid_t owner)
{
	return st->st_uid == owner && !(st->st_mode & WRITABLE_BY_OTHERS);
}

static int check_store(struct store *store, struct jail_error *err)
{
	struct stat st;

	if (fstat(store->fd, &st))
		return fail_at(store->path, "fstat", errno, "cannot look at this cache", err);
	if (trusted(&st, store->owner))
		return 0;
	if (st.st_uid != store->owner)
		jail_fail(err, NULL, EPERM, "this cache should belong to uid %u, and belongs to uid %u", (unsigned)store->owner,
			  (unsigned)st.st_uid);
	else
		jail_fail(err, NULL, EPERM, "this cache has mode %04o, so others can write in it; chmod go-w it",
			  (unsigned)st.st_mode & 07777);
	return jail_error_at(err, NULL, 0, store->path);
}

int store_open_personal(struct store *store, const struct settings *settings, struct jail_error *err)
{
	*store = (struct store){ .fd = -1, .owner = geteuid(), .own = true,
				 .path = text_format("%s", settings_get(settings, "ENROOT_CACHE_PATH")) };
	if (settings_directory(settings, "ENROOT_CACHE_PATH", err))
		return -1;
	store->fd = open(store->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (store->fd < 0)
		return fail_at(store->path, "open", errno, "cannot open the directory of the cache (ENROOT_CACHE_PATH)", err);
	return check_store(store, err);
}

/* A directory of root's that everybody may make things in, or root alone. */
static int open_common(int root, const char *name)
{
	scoped_fd fd = openat(root, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct stat st;

	if (fd < 0 || fstat(fd, &st))
		return -1;
	if (st.st_uid || ((st.st_mode & WRITABLE_BY_OTHERS) && !(st.st_mode & S_ISVTX))) {
		errno = EPERM;
		return -1;
	}
	return jail_keep(&fd);
}

int store_open_users(const char *path, int *locks, struct jail_error *err)
{
	*locks = -1;
	scoped_fd root = jail_open_trusted(path, true, "shared image cache", err);
	if (root < 0)
		return -1;
	*locks = open_common(root, "locks");
	int users = open_common(root, "users");
	if (users >= 0)
		return users;
	return fail_at(path, "open", errno, errno == EPERM
		       ? "\"users\" in it must belong to root, and be sticky if others may write there: chmod 1777"
		       : "there is no \"users\" in it; the administrator makes it: enroot cache init", err);
}

int store_open_shared(struct store *store, int users, const char *root, uid_t owner, bool make, struct jail_error *err)
{
	scoped_free char *name = text_format("%u", (unsigned)owner);

	*store = (struct store){ .fd = -1, .owner = owner, .own = make, .shared = true,
				 .path = text_format("%s/users/%s", root, name) };
	if (make && !mkdirat(users, name, 0700)) {
		/* The umask shall not decide whether others can read it. */
		scoped_fd made = openat(users, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (made < 0 || fchmod(made, 0755))
			return fail_at(store->path, "chmod", errno, "cannot make it readable for others", err);
	} else if (make && errno != EEXIST) {
		return fail_at(store->path, "mkdir", errno, "cannot make one's own part of the shared cache", err);
	}
	store->fd = openat(users, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (store->fd < 0)
		return fail_at(store->path, "open", errno, "cannot open this part of the shared cache", err);
	return check_store(store, err);
}

void store_close(struct store *store)
{
	if (store->path)
		jail_close(&store->fd);
	free(store->path);
	store->path = NULL;
}

int store_open_folder(const struct store *store, int folder, const char *name)
{
	scoped_fd fd = openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct stat st;

	if (fd < 0 || fstat(fd, &st))
		return -1;
	if (!trusted(&st, store->owner)) {
		errno = EPERM;
		return -1;
	}
	return jail_keep(&fd);
}

int store_folder(const struct store *store, const char *name)
{
	int fd = store_open_folder(store, store->fd, name);

	if (fd >= 0 || errno != ENOENT || !store->own)
		return fd;
	if (mkdirat(store->fd, name, 0700) && errno != EEXIST)
		return -1;
	/* Two that make it at once both set the same mode. */
	if (store->shared && fchmodat(store->fd, name, 0755, 0))
		return -1;
	return store_open_folder(store, store->fd, name);
}

int store_open_file(const struct store *store, int folder, const char *name, struct stat *st)
{
	/* A FIFO would block here. */
	scoped_fd fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);

	if (fd < 0 || fstat(fd, st))
		return -1;
	if (!S_ISREG(st->st_mode) || !trusted(st, store->owner)) {
		errno = EPERM;
		return -1;
	}
	return jail_keep(&fd);
}

bool store_is_hollow(const struct stat *st)
{
	return st->st_size > HOLLOW_SIZE && st->st_blocks * 512 < st->st_size / HOLLOW_RATIO;
}

void store_mark_used(const struct store *store, const char *key)
{
	scoped_fd folder = store->own ? store_folder(store, "used") : -1;
	scoped_fd fd = folder < 0 ? -1 : openat(folder, key, O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0644);

	if (fd >= 0)
		futimens(fd, NULL);
}

time_t store_used(const struct store *store, const char *key)
{
	scoped_fd folder = store_open_folder(store, store->fd, "used");
	time_t now = time(NULL);
	struct stat st;

	if (folder < 0 || fstatat(folder, key, &st, AT_SYMLINK_NOFOLLOW) || st.st_mtime < 0)
		return 0;
	return st.st_mtime > now ? now : st.st_mtime;
}

void store_each(int users, const char *root, unsigned most, bool (*visit)(void *context, struct store *store), void *context)
{
	int copy = openat(users, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *stream = copy < 0 ? NULL : fdopendir(copy);
	struct dirent *entry;
	bool more = true;

	for (unsigned i = 0; stream && more && most && i < MOST_NAMES && (entry = readdir(stream)); i++) {
		struct jail_error ignored;
		struct store store;
		char *end;
		unsigned long uid = strtoul(entry->d_name, &end, 10);
		/* No "007" or "+7": one user, one name. */
		if (*end || entry->d_name[0] < '0' || entry->d_name[0] > '9' || (entry->d_name[0] == '0' && entry->d_name[1]) ||
		    uid >= (uid_t)-1)
			continue;
		if (!store_open_shared(&store, users, root, (uid_t)uid, false, &ignored)) {
			store.own = !geteuid();
			more = visit(context, &store);
			most--;
		}
		store_close(&store);
	}
	if (stream)
		closedir(stream);
}
