/* SPDX-License-Identifier: Apache-2.0 */
/* Opens files of an image on this machine, in a directory or inside a tar archive. daemon.c
 * and local_image.c call it. */
#define _GNU_SOURCE
#include "image_files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "native/base/scoped.h"
#include "native/layers/inflate.h"
#include "native/layers/stream.h"
#include "layer_error.h"
#include "tar_index.h"

#define SMALL_FILE ((size_t)16 << 20) /* a manifest or configuration; registries refuse those above 4 MiB */

struct image_files {
	char *name;
	int folder;  /* -1: it is an archive */
	int archive;
	struct tar_index index;
};

static struct image_files *new_place(const char *name)
{
	struct image_files *files = calloc(1, sizeof(*files));

	if (!files)
		abort();
	files->name = text_format("%s", name);
	files->folder = files->archive = -1;
	return files;
}

void image_files_close(struct image_files *files)
{
	if (!files)
		return;
	jail_close(&files->folder);
	jail_close(&files->archive);
	tar_index_free(&files->index);
	free(files->name);
	free(files);
}

const char *image_files_name(const struct image_files *files)
{
	return files->name;
}

struct image_files *image_files_open_folder(const char *path, struct jail_error *err)
{
	struct image_files *files = new_place(path);

	files->folder = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (files->folder >= 0)
		return files;
	jail_fail(err, "open", errno, "cannot open the directory of the image");
	jail_error_at(err, NULL, 0, path);
	image_files_close(files);
	return NULL;
}

/* A file without a name; or one whose name is gone at once. */
static int nameless(const struct settings *settings, struct jail_error *err)
{
	const char *folder = settings_get(settings, "ENROOT_TEMP_PATH");
	scoped_free char *path = text_format("%s/enroot-import-XXXXXX", *folder ? folder : "/tmp");
	int fd = open(*folder ? folder : "/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

	if (fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL) && (fd = mkostemp(path, O_CLOEXEC)) >= 0)
		unlink(path);
	if (fd >= 0)
		return fd;
	jail_fail(err, "open", errno, "cannot make a file in the directory ENROOT_TEMP_PATH");
	return jail_error_at(err, NULL, 0, folder);
}

/* All that the descriptor gives, decompressed if need be, into a file without a name. */
static int spool(int fd, const char *name, const struct settings *settings, struct jail_error *err)
{
	scoped_fd file = nameless(settings, err);
	struct image_stream_request request = { .fd = fd };
	struct image_pool pool;
	struct image_stream *stream;
	struct image_block *block;
	struct image_error fault;
	int got = -1;

	if (file < 0) {
		close(fd);
		return -1;
	}
	image_pool_init(&pool, 2 * IMAGE_QUEUE_ROOM, IMAGE_BLOCK_SIZE);
	stream = image_stream_open(&pool, &request, &fault);
	while (stream && (got = image_stream_next(stream, &block, &fault)) > 0) {
		int failed = text_write(file, (const char *)block->data, block->length);

		image_block_release(block);
		if (failed) {
			image_fail_call(&fault, settings_get(settings, "ENROOT_TEMP_PATH"), "write", errno);
			got = -1;
			break;
		}
	}
	image_stream_close(stream);
	image_pool_destroy(&pool);
	return got ? image_error_to_jail(&fault, name, err) : jail_keep(&file);
}

struct image_files *image_files_open_stream(int fd, const char *name, const struct settings *settings, struct jail_error *err)
{
	struct image_files *files = new_place(name);
	unsigned char head[6] = { 0 };
	ssize_t got = pread(fd, head, sizeof(head), 0);

	if (got >= 0 && image_compression_of(head, (size_t)got) == IMAGE_PLAIN)
		files->archive = fd;
	else
		files->archive = spool(fd, name, settings, err);
	if (files->archive >= 0 && !tar_index_read(&files->index, files->archive, name, err))
		return files;
	image_files_close(files);
	return NULL;
}

struct image_files *image_files_open_archive(const char *path, const struct settings *settings, struct jail_error *err)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd >= 0)
		return image_files_open_stream(fd, path, settings, err);
	jail_fail(err, "open", errno, "cannot open the archive of the image");
	jail_error_at(err, NULL, 0, path);
	return NULL;
}

static int missing(const struct image_files *files, const char *name, const char *call, int number, struct jail_error *err)
{
	jail_fail(err, call, number, "the image has no file \"%.200s\", or it cannot be read", name);
	return jail_error_at(err, NULL, 0, files->name);
}

static int open_member(const struct image_files *files, const char *name, unsigned long long *length, struct jail_error *err)
{
	const struct tar_member *member = tar_index_find(&files->index, name);
	scoped_free char *self = text_format("/proc/self/fd/%d", files->archive);
	scoped_fd fd = -1;

	if (!member)
		return missing(files, name, NULL, 0, err);
	/* Two layers are read at the same time: each from a place of its own. */
	fd = open(self, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || lseek(fd, (off_t)member->offset, SEEK_SET) < 0)
		return missing(files, name, "open", errno, err);
	*length = member->length;
	return jail_keep(&fd);
}

int image_files_open_file(const struct image_files *files, const char *name, unsigned long long *length, struct jail_error *err)
{
	struct stat st;

	if (files->folder < 0)
		return open_member(files, name, length, err);
	scoped_fd fd = openat(files->folder, name, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) || !S_ISREG(st.st_mode))
		return missing(files, name, "open", fd < 0 ? errno : EINVAL, err);
	*length = (unsigned long long)st.st_size;
	return jail_keep(&fd);
}

char *image_files_read(const struct image_files *files, const char *name, size_t *length, struct jail_error *err)
{
	unsigned long long size = 0;
	scoped_fd fd = image_files_open_file(files, name, &size, err);
	size_t done = 0;
	ssize_t got;

	if (fd < 0)
		return NULL;
	if (size > SMALL_FILE) {
		jail_fail(err, NULL, 0, "its file \"%.100s\" has %llu bytes: no manifest is that long", name, size);
		jail_error_at(err, NULL, 0, files->name);
		return NULL;
	}
	char *text = malloc(size + 1);
	if (!text)
		abort();
	while (done < size && (got = read(fd, text + done, size - done)) > 0)
		done += (size_t)got;
	text[done] = '\0';
	*length = done;
	if (done == size)
		return text;
	missing(files, name, "read", errno, err);
	free(text);
	return NULL;
}

bool image_files_has(const struct image_files *files, const char *name)
{
	return files->folder < 0 ? tar_index_find(&files->index, name) != NULL
				 : !faccessat(files->folder, name, R_OK, 0);
}
