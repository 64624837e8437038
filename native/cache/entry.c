/* SPDX-License-Identifier: Apache-2.0 */
/* Opens an image in a store of the cache, and checks that it is as its record says. image.c
 * and enroot/importing call it. */
#define _GNU_SOURCE
#include "entry.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "native/base/scoped.h"
#include "draft.h"
#include "lock.h"

static int absent(struct jail_error *err)
{
	return jail_fail(err, NULL, ENOENT, "it is not in this cache");
}

static int refused(const struct store *store, const char *key, const char *what, struct jail_error *err)
{
	scoped_free char *path = text_format("%s/images/%s", store->path, key);

	jail_fail(err, NULL, EBADMSG, "this image of the cache is not used: %s", what);
	return jail_error_at(err, NULL, 0, path);
}

static int read_record(const struct store *store, int folder, struct record *record, struct jail_error *err)
{
	struct stat st;
	scoped_fd fd = store_open_file(store, folder, DRAFT_RECORD, &st);
	scoped_free char *text = fd < 0 ? NULL : text_read_open(fd, DRAFT_RECORD, RECORD_MOST, NULL, err);

	if (fd < 0)
		return jail_fail(err, "open", errno, "cannot read its record");
	return text ? record_parse(record, text, err) : -1;
}

/* For a moment its maker still has the lock with which it wrote. Without a lock it is as good, but for trimming. */
static void share(int fd)
{
	const struct timespec moment = { .tv_nsec = 2000000 };

	for (int i = 0; i < 50 && lock_take(fd, LOCK_SHARED) && errno == EAGAIN; i++)
		nanosleep(&moment, NULL);
}

int entry_open(const struct store *store, const char *key, struct record *record, struct jail_error *err)
{
	struct stat st, again;

	*record = (struct record){ 0 };
	scoped_fd images = store_open_folder(store, store->fd, "images");
	scoped_fd folder = images < 0 ? -1 : store_open_folder(store, images, key);
	if (folder < 0)
		return errno == ENOENT ? absent(err) : refused(store, key, "others can write there, or it is no directory", err);
	scoped_fd fd = store_open_file(store, folder, DRAFT_IMAGE, &st);
	if (fd < 0)
		return errno == ENOENT ? absent(err) : refused(store, key, "others can write it, or it is no file", err);
	share(fd);
	/* Is it being removed? */
	if (fstatat(images, key, &again, AT_SYMLINK_NOFOLLOW) || fstat(folder, &st) || again.st_ino != st.st_ino ||
	    fstat(fd, &st))
		return absent(err);
	if (read_record(store, folder, record, err))
		return refused(store, key, "its record is damaged", err);
	if (strcmp(record->key, key))
		return refused(store, key, "it is another image", err);
	if ((unsigned long long)st.st_size != record->size || st.st_mtim.tv_sec != record->changed.tv_sec ||
	    st.st_mtim.tv_nsec != record->changed.tv_nsec)
		return refused(store, key, "it was changed since it was made, perhaps by a hard link to it", err);
	return jail_keep(&fd);
}

int entry_write_record(int folder, const struct record *record, mode_t mode, struct jail_error *err)
{
	scoped_free char *text = record_format(record);
	scoped_fd fd = openat(folder, DRAFT_RECORD, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);

	if (fd < 0 || text_write(fd, text, strlen(text)) || fchmod(fd, mode) || fsync(fd))
		return jail_fail(err, "write", errno, "cannot write the record of an image");
	return 0;
}
