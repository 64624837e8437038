/* SPDX-License-Identifier: Apache-2.0 */
/* Checks by the superblock of squashfs 4.0 that a file is an image, so that users do not get the unclear error of a
 * mount or of unsquashfs. bundle.c, create.c and start.c call it. */
#define _GNU_SOURCE
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "native/base/scoped.h"
#include "native/base/report.h"
#include "command.h"

struct superblock {
	char magic[4];
	uint32_t inodes, changed, block_size, fragments;
	uint16_t compression, block_log, flags, ids, major, minor;
	uint64_t root, bytes_used;
};

#define COMPRESSIONS 6 /* gzip, lzma, lzo, xz, lz4, zstd */

static int check_superblock(const char *path, const struct superblock *block, ssize_t got, const struct stat *st)
{
	unsigned long long bytes = le64toh(block->bytes_used), there = (unsigned long long)st->st_size;

	if (S_ISDIR(st->st_mode))
		return report_error("%s: it is a directory, not a squashfs file\n  next: make an image of it with "
				 "mksquashfs DIRECTORY FILE.sqsh, and name that", path);
	if (!S_ISREG(st->st_mode))
		return report_error("%s: it is no file\n  next: name a squashfs file, as enroot import makes them", path);
	if (!there)
		return report_error("%s: the file is empty: whatever made it did not come to its end\n  next: make it or "
				 "copy it again", path);
	if (got < (ssize_t)sizeof(*block) || memcmp(block->magic, "hsqs", 4))
		return report_error("%s: it is no squashfs image: it does not begin as one\n  next: enroot import makes one "
				 "of an image in a registry or an archive", path);
	if (le16toh(block->major) != 4 || le16toh(block->minor))
		return report_error("%s: it is of squashfs %u.%u, and images are of 4.0\n  next: make it again with a "
				 "mksquashfs of today", path, le16toh(block->major), le16toh(block->minor));
	if (there < bytes)
		return report_error("%s: the image is cut off: there are %llu of its %llu bytes\n  next: make it or copy it "
				 "again; was the disk full?", path, there, bytes);
	if (!block->compression || le16toh(block->compression) > COMPRESSIONS)
		return report_error("%s: it is of a compression that nothing here knows (number %u)\n  next: make it again, "
				 "with lz4 or zstd", path, le16toh(block->compression));
	return 0;
}

int command_check_image(const char *path)
{
	struct superblock block = { .compression = 0 };
	struct stat st;
	/* A FIFO would block here. */
	scoped_fd fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

	if (fd < 0 && errno == ENOENT)
		return -1;
	if (fd < 0 || fstat(fd, &st))
		return report_error("%s: the image cannot be read: %s\n  next: have its owner allow it (chmod), and the directories above it",
				    path, strerrordesc_np(errno));
	return check_superblock(path, &block, pread(fd, &block, sizeof(block), 0), &st);
}
