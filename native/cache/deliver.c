/* SPDX-License-Identifier: Apache-2.0 */
/* Gives the user the file that `enroot import` names: a reflink, hard link or copy of the image in the cache.
 * enroot/importing/import.c calls it. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "native/base/scoped.h"
#include "native/base/atomic_file.h"
#include "content_digest.h"
#include "all_stores.h"

/* Whether others would run what the user changes through a hard link: never those of a store that others trust. And the mode
 * of the one file for two names must be the one that the umask asks for. */
static bool may_link(const struct cache_image *image)
{
	const struct cache *cache = image->cache;
	struct stat st;

	if (!image->store->own || (image->store->shared && cache->trusted_by_others) ||
	    !settings_true(cache->settings, "ENROOT_CACHE_LINK") || fstat(image->fd, &st))
		return false;
	return st.st_uid == geteuid() && (st.st_mode & 0777) == (0444 & ~cache->mask);
}

/* 0, or -1 and errno. */
static int hard_link(const struct cache_image *image, const char *path, bool force)
{
	scoped_free char *source = text_format("/proc/self/fd/%d", image->fd);

	if (!linkat(AT_FDCWD, source, AT_FDCWD, path, AT_SYMLINK_FOLLOW))
		return 0;
	if (errno != EEXIST || !force)
		return -1;
	const char *slash = strrchr(path, '/');
	scoped_free char *draft = atomic_file_draft_name(slash ? slash + 1 : path);
	scoped_free char *other = text_format("%.*s%s", slash ? (int)(slash + 1 - path) : 0, path, draft);
	if (linkat(AT_FDCWD, source, AT_FDCWD, other, AT_SYMLINK_FOLLOW))
		return -1;
	int result = rename(other, path), number = errno;
	/* Two names of one file: rename does nothing then. */
	unlink(other);
	errno = number;
	return result;
}

int cache_deliver(const struct cache_image *image, const char *path, bool force, struct jail_error *err)
{
	struct atomic_file output;

	if (atomic_file_open(&output, path, force, err)) {
		atomic_file_close(&output);
		return -1;
	}
	int result = 0;
	bool whole = !ioctl(output.fd, FICLONE, image->fd);
	if (!whole && may_link(image) && !hard_link(image, path, force)) {
		atomic_file_close(&output);
		return 0;
	}
	if (!whole)
		result = content_copy(image->fd, output.fd, err);
	if (!result)
		result = atomic_file_commit(&output, 0666, err);
	atomic_file_close(&output);
	return result;
}
