/* SPDX-License-Identifier: Apache-2.0 */
/* Compares a file that a killed or failed run left with the content that comes now, and rewrites what differs. After
 * a power cut a file may have its size and time and yet zeros for content. file.c calls it. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "parts.h"
#include "native/layers/scoped.h"

enum { CHUNK = 16384 }; /* on the stack of a thread that writes */

/* Whether the file has these bytes there; without `data` zeros. What cannot be read has others. */
static bool has(int fd, const unsigned char *data, size_t length, uint64_t offset)
{
	static const unsigned char zeros[CHUNK];
	unsigned char found[CHUNK];

	while (length) {
		ssize_t got = pread(fd, found, length < CHUNK ? length : CHUNK, (off_t)offset);

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0 || memcmp(found, data ? data : zeros, (size_t)got) != 0)
			return false;
		data = data ? data + got : NULL;
		length -= (size_t)got;
		offset += (uint64_t)got;
	}
	return true;
}

bool has_content(int folder, const char *name, const struct item *item)
{
	scoped_fd fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

	return fd >= 0 && has(fd, item->data, item->record.size, 0);
}

int mend_part(struct image_directory *directory, const struct item *item, int fd, const unsigned char *data,
	      size_t length, uint64_t offset, bool *mended, struct image_error *err)
{
	if (has(fd, data, length, offset))
		return 0;
	*mended = true;
	return write_all(directory, item, fd, data, length, offset, err);
}

int mend_hole(struct image_directory *directory, const struct item *item, int fd, uint64_t from, uint64_t to,
	      bool *mended, struct image_error *err)
{
	static const unsigned char zeros[CHUNK];

	while (from < to) {
		if (atomic_load(thread_pool_stopped(directory->work)))
			return image_fail(err, IMAGE_FAULT_CANCELLED, "", "stopped");
		off_t data = lseek(fd, (off_t)from, SEEK_DATA);
		size_t length;

		if (data < 0 && errno == ENXIO)
			return 0; /* nothing but a hole to the end */
		if (data > (off_t)from)
			from = (uint64_t)data;
		if (from >= to)
			return 0;
		length = to - from < CHUNK ? (size_t)(to - from) : CHUNK;
		if (!has(fd, NULL, length, from)) {
			*mended = true;
			if (write_all(directory, item, fd, zeros, length, from, err))
				return -1;
		}
		from += length;
	}
	return 0;
}
