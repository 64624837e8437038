/* The file that a user gets of an image. */
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

#include "../../spank_jail/core/scoped.h"
#include "../command/output.h"
#include "stores.h"

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
	scoped_free char *other = text_format("%s.enroot-%d", path, getpid());
	if (linkat(AT_FDCWD, source, AT_FDCWD, other, AT_SYMLINK_FOLLOW))
		return -1;
	int result = rename(other, path), number = errno;
	/* Two names of one file: rename does nothing then. */
	unlink(other);
	errno = number;
	return result;
}

static int copy(int from, int to, struct jail_error *err)
{
	struct stat st;
	off_t at = 0;

	if (fstat(from, &st))
		return jail_fail(err, "fstat", errno, "cannot look at the image in the cache");
	while (at < st.st_size) {
		ssize_t done = copy_file_range(from, &at, to, NULL, (size_t)(st.st_size - at), 0);
		if (done > 0 || (done < 0 && errno == EINTR))
			continue;
		if (!done)
			return jail_fail(err, NULL, ENODATA, "the image in the cache became shorter");
		if (errno != EXDEV && errno != EINVAL && errno != EOPNOTSUPP && errno != ENOSYS)
			return jail_fail(err, "copy_file_range", errno, "cannot copy the image out of the cache");
		break;
	}
	scoped_free char *buffer = malloc(1 << 20);
	while (at < st.st_size && buffer) {
		ssize_t got = pread(from, buffer, 1 << 20, at);
		if (got <= 0 || text_write(to, buffer, (size_t)got))
			return jail_fail(err, "write", got ? errno : ENODATA, "cannot copy the image out of the cache");
		at += got;
	}
	return buffer ? 0 : jail_fail(err, NULL, ENOMEM, "no memory");
}

int cache_deliver(const struct cache_image *image, const char *path, bool force, struct jail_error *err)
{
	struct output output;

	if (output_open(&output, path, force, err)) {
		output_close(&output);
		return -1;
	}
	int result = 0;
	bool whole = !ioctl(output.fd, FICLONE, image->fd);
	if (!whole && may_link(image) && !hard_link(image, path, force)) {
		output_close(&output);
		return 0;
	}
	if (!whole)
		result = copy(image->fd, output.fd, err);
	if (!result)
		result = output_commit(&output, 0666, err);
	output_close(&output);
	return result;
}
