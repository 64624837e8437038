/* SPDX-License-Identifier: Apache-2.0 */
/* Makes an entry of the cache, an image or a layer, in a hidden, locked directory, and renames it when it is
 * complete. A killed import so leaves no half entry. Files of this folder and enroot/ call it. */
#define _GNU_SOURCE
#include "draft.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "native/base/scoped.h"
#include "content_digest.h"
#include "lock.h"

/* Names looked at in a directory that may be everybody's. */
#define MOST_LOCKS 10000
/* Names in images and blobs of what is being removed. */
#define GONE ".gone-"

static char *fresh_name(const char *prefix)
{
	unsigned long long number = 0;

	if (getrandom(&number, sizeof(number), 0) < 0)
		number = (unsigned long long)random();
	return text_format("%s%ld-%016llx", prefix, (long)getpid(), number);
}

/* False: somebody took it for left behind, before it was locked. */
static bool make(struct cache_draft *draft)
{
	struct stat st;

	draft->name = fresh_name("");
	if (mkdirat(draft->drafts, draft->name, 0700))
		return false;
	draft->folder = openat(draft->drafts, draft->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	draft->fd = draft->folder < 0 ? -1 : openat(draft->folder, draft->file, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (draft->fd < 0)
		return false;
	if (lock_take(draft->fd, LOCK_EXCLUSIVE) && errno == EAGAIN)
		return false;
	return !fstat(draft->fd, &st) && st.st_nlink;
}

static void forget(struct cache_draft *draft)
{
	if (draft->folder >= 0) {
		unlinkat(draft->folder, draft->file, 0);
		unlinkat(draft->folder, DRAFT_RECORD, 0);
	}
	if (draft->name)
		unlinkat(draft->drafts, draft->name, AT_REMOVEDIR);
	jail_close(&draft->fd);
	jail_close(&draft->folder);
	free(draft->name);
	draft->name = NULL;
}

struct cache_draft *draft_begin(const struct store *store, const char *file, struct jail_error *err)
{
	struct cache_draft *draft = calloc(1, sizeof(*draft));

	if (!draft) {
		jail_fail(err, "malloc", ENOMEM, "no memory");
		return NULL;
	}
	*draft = (struct cache_draft){ .drafts = store_folder(store, "drafts"), .folder = -1, .fd = -1, .file = file };
	for (int i = 0; draft->drafts >= 0 && i < 10; i++) {
		if (make(draft))
			return draft;
		int number = errno;
		forget(draft);
		errno = number;
	}
	jail_fail(err, "open", errno, "cannot begin a file in the cache");
	jail_error_at(err, NULL, 0, store->path);
	draft_end(draft);
	return NULL;
}

void draft_end(struct cache_draft *draft)
{
	if (!draft)
		return;
	forget(draft);
	jail_close(&draft->drafts);
	free(draft);
}

int draft_move(struct cache_draft **draft, const struct store *store, struct jail_error *err)
{
	struct cache_draft *from = *draft;
	scoped_fd drafts = store_folder(store, "drafts");

	if (drafts >= 0 && !renameat2(from->drafts, from->name, drafts, from->name, RENAME_NOREPLACE)) {
		jail_close(&from->drafts);
		from->drafts = jail_keep(&drafts);
		return 0;
	}
	/* Another file system, or one that does not know this call. */
	struct cache_draft *to = draft_begin(store, from->file, err);
	if (!to || content_copy(from->fd, to->fd, err)) {
		draft_end(to);
		return -1;
	}
	draft_end(from);
	*draft = to;
	return 0;
}

/* From here on a descriptor that cannot write, and a lock that others may have too. The file has its name already: in
 * between, nobody may take it for left behind. */
static void become_reader(struct cache_draft *draft, int folder, const char *name)
{
	lock_take(draft->fd, LOCK_SHARED);
	int fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return;
	lock_take(fd, LOCK_SHARED);
	jail_close(&draft->fd);
	draft->fd = fd;
}

static int fail_publish(const char *call, const struct store *store, struct jail_error *err)
{
	jail_fail(err, call, errno, "cannot add to the cache");
	return jail_error_at(err, NULL, 0, store->path);
}

int draft_publish_image(struct cache_draft *draft, const struct store *store, const char *key, struct jail_error *err)
{
	scoped_fd images = store_folder(store, "images");

	if (images < 0 || (store->shared && fchmod(draft->folder, 0755)))
		return fail_publish("open", store, err);
	/* Over a directory that is not empty, rename never goes. */
	if (renameat(draft->drafts, draft->name, images, key))
		return errno == EEXIST || errno == ENOTEMPTY ? 1 : fail_publish("rename", store, err);
	become_reader(draft, draft->folder, draft->file);
	free(draft->name);
	draft->name = NULL;
	jail_close(&draft->folder);
	fsync(images);
	return 0;
}

int draft_publish_blob(struct cache_draft *draft, const struct store *store, const char *name, struct jail_error *err)
{
	scoped_fd blobs = store_folder(store, "blobs");

	if (blobs < 0)
		return fail_publish("open", store, err);
	/* The one that is there has the same bytes, or is damaged. */
	if (renameat(draft->folder, draft->file, blobs, name))
		return fail_publish("rename", store, err);
	become_reader(draft, blobs, name);
	return 0;
}

static bool is_left(int folder, const char *file)
{
	scoped_fd fd = openat(folder, file, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

	/* Whoever makes it cannot get its lock while this one has it, and begins another. */
	if (fd < 0 || lock_take(fd, LOCK_SHARED))
		return false;
	unlinkat(folder, file, 0);
	return true;
}

static bool is_named_in(int folder, const char *file)
{
	return !faccessat(folder, file, F_OK, AT_SYMLINK_NOFOLLOW);
}

static void sweep_drafts(const struct store *store)
{
	int fd = store_open_folder(store, store->fd, "drafts");
	DIR *stream = fd < 0 ? NULL : fdopendir(fd);

	for (struct dirent *entry; stream && (entry = readdir(stream));) {
		if (entry->d_name[0] == '.')
			continue;
		scoped_fd folder = store_open_folder(store, fd, entry->d_name);
		if (folder < 0)
			continue;
		/* A maker's record comes after its file: a record that is there first, and then no file, is of a process that was
		 * killed while it removed both. */
		bool has_record = is_named_in(folder, DRAFT_RECORD);
		bool is_removed = (int)is_left(folder, DRAFT_IMAGE) | (int)is_left(folder, DRAFT_BLOB);
		if (is_removed || (has_record && !is_named_in(folder, DRAFT_IMAGE) && !is_named_in(folder, DRAFT_BLOB)))
			unlinkat(folder, DRAFT_RECORD, 0);
		/* Not while there is a file: somebody makes it. */
		unlinkat(fd, entry->d_name, AT_REMOVEDIR);
	}
	if (stream)
		closedir(stream);
}

/* An entry under the name of what is removed. `folder` is images or blobs. */
static void remove_gone(const struct store *store, int folder, const char *name)
{
	scoped_fd fd = store_open_folder(store, folder, name);

	if (fd >= 0) {
		unlinkat(fd, DRAFT_IMAGE, 0);
		unlinkat(fd, DRAFT_RECORD, 0);
		unlinkat(folder, name, AT_REMOVEDIR);
	} else {
		unlinkat(folder, name, 0);
	}
}

static void sweep_gone(const struct store *store, const char *kind)
{
	int fd = store_open_folder(store, store->fd, kind);
	DIR *stream = fd < 0 ? NULL : fdopendir(fd);

	for (struct dirent *entry; stream && (entry = readdir(stream));)
		if (text_starts(entry->d_name, GONE))
			remove_gone(store, fd, entry->d_name);
	if (stream)
		closedir(stream);
}

void draft_sweep_locks(int folder)
{
	int fd = folder < 0 ? -1 : openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *stream = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *entry;
	struct stat st;

	for (int i = 0; stream && i < MOST_LOCKS && (entry = readdir(stream)); i++) {
		if (entry->d_name[0] == '.' || fstatat(fd, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) || st.st_uid != geteuid() ||
		    !S_ISREG(st.st_mode))
			continue;
		int lock = lock_file(fd, entry->d_name, false);
		if (lock >= 0)
			lock_file_done(fd, entry->d_name, &lock);
	}
	if (stream)
		closedir(stream);
}

void draft_sweep(const struct store *store)
{
	sweep_drafts(store);
	sweep_gone(store, "images");
	sweep_gone(store, "blobs");
	scoped_fd locks = store_open_folder(store, store->fd, "locks");
	draft_sweep_locks(locks);
}

/* The file of an entry, or -1: then its state does not matter. */
static int open_content(const struct store *store, int folder, const char *name, struct stat *st)
{
	scoped_fd entry = store_open_folder(store, folder, name);

	*st = (struct stat){ 0 };
	if (entry < 0)
		return store_open_file(store, folder, name, st);
	return store_open_file(store, entry, DRAFT_IMAGE, st);
}

long long draft_remove(const struct store *store, const char *kind, const char *key, bool force)
{
	scoped_fd folder = store_open_folder(store, store->fd, kind);
	scoped_free char *gone = fresh_name(GONE);
	struct stat st;

	if (folder < 0)
		return -1;
	scoped_fd fd = open_content(store, folder, key, &st);
	if (fd >= 0 && !force && lock_is_held(fd))
		return 0;
	if (renameat(folder, key, folder, gone))
		return errno == ENOENT ? 0 : -1;
	/* Whoever found it before has its lock by now, or looks whether it is still there and finds that it is not. */
	if (fd >= 0 && !force && lock_is_held(fd) && !renameat2(folder, gone, folder, key, RENAME_NOREPLACE))
		return 0;
	remove_gone(store, folder, gone);
	scoped_fd used = store_open_folder(store, store->fd, "used");
	if (used >= 0)
		unlinkat(used, key, 0);
	/* What a hard link holds is no more of the cache. */
	return fd < 0 ? 1 : (long long)st.st_blocks * 512 + 1;
}
