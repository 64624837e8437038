/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a whole buffer at an offset of a file. listing.c, records.c and native/squashfs call it. */
#define _GNU_SOURCE
#include "write_at.h"

#include <errno.h>
#include <unistd.h>

int image_write_at(int fd, const void *data, size_t length, uint64_t offset, struct image_error *err)
{
	while (length) {
		ssize_t done = pwrite(fd, data, length, (off_t)offset);

		if (done < 0 && errno == EINTR)
			continue;
		if (done <= 0)
			return image_fail_call(err, "", "pwrite", done ? errno : ENOSPC);
		data = (const char *)data + done;
		length -= (size_t)done;
		offset += (uint64_t)done;
	}
	return 0;
}
