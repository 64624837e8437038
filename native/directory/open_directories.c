/* SPDX-License-Identifier: Apache-2.0 */
/* Makes and opens the directories that files are written into. Each thread keeps the last ones open. file.c and
 * directory.c call it. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "parts.h"
#include "native/layers/scoped.h"

void writer_state_begin(void *state, void *context)
{
	struct writer_state *writer = state;
	struct image_directory *directory = context;

	for (int i = 0; i < KEPT_FOLDERS; i++)
		writer->kept[i].fd = -1;
	/* A file is made with its mode at once, for which the mask must be 0, in this thread alone. Docker's and
	 * containerd's seccomp profiles forbid this call. */
	if (!unshare(CLONE_FS))
		umask(0);
	else
		atomic_store(&directory->masked, true);
}

void writer_state_end(void *state)
{
	struct writer_state *writer = state;

	for (int i = 0; i < KEPT_FOLDERS; i++)
		image_close(&writer->kept[i].fd);
	free(writer->buffer);
}

static atomic_uchar *state_of(struct image_directory *directory, uint32_t folder)
{
	_Atomic(atomic_uchar *) *chunk = &directory->folders[folder / FOLDER_CHUNK];

	if (!atomic_load(chunk)) {
		scoped_lock(&directory->mutex);
		if (!atomic_load(chunk))
			atomic_store(chunk, calloc(FOLDER_CHUNK, 1));
	}
	return atomic_load(chunk) ? atomic_load(chunk) + folder % FOLDER_CHUNK : NULL;
}

void folder_set_absent(struct image_directory *directory, uint32_t folder)
{
	atomic_uchar *state = state_of(directory, folder);

	if (state)
		atomic_store(state, FOLDER_ABSENT);
}

static int make(struct image_directory *directory, uint32_t node, int parent, const char *name,
		struct image_error *err)
{
	struct stat status;

	if (!mkdirat(parent, name, 0700))
		return 0;
	if (errno == EEXIST && !fstatat(parent, name, &status, AT_SYMLINK_NOFOLLOW)) {
		/* Made by an earlier run or by another shard. */
		if (S_ISDIR(status.st_mode))
			return 0;
		errno = EEXIST;
		if (directory->request.resume && !unlinkat(parent, name, 0) && !mkdirat(parent, name, 0700))
			return 0;
	}
	return fail_at(directory, node, "mkdirat", errno, err);
}

/* Makes the directory once, whoever comes first. */
static int ensure(struct image_directory *directory, uint32_t folder, uint32_t node, int parent, const char *name,
		  struct image_error *err)
{
	atomic_uchar *state = state_of(directory, folder);
	int result;

	if (!state)
		return image_fail_memory(err);
	if (atomic_load(state) == FOLDER_READY)
		return 0;
	{
		scoped_lock(&directory->mutex);
		while (atomic_load(state) == FOLDER_BEING_MADE)
			pthread_cond_wait(&directory->made, &directory->mutex);
		if (atomic_load(state) == FOLDER_READY)
			return 0;
		atomic_store(state, FOLDER_BEING_MADE);
	}
	result = make(directory, node, parent, name, err);
	scoped_lock(&directory->mutex);
	atomic_store(state, result ? FOLDER_ABSENT : FOLDER_READY);
	pthread_cond_broadcast(&directory->made);
	return result;
}

static void keep(struct writer_state *writer, uint32_t folder, int fd)
{
	int oldest = 0;

	for (int i = 0; i < KEPT_FOLDERS; i++) {
		if (writer->kept[i].fd < 0) {
			oldest = i;
			break;
		}
		if (writer->kept[i].used < writer->kept[oldest].used)
			oldest = i;
	}
	image_close(&writer->kept[oldest].fd);
	writer->kept[oldest].folder = folder;
	writer->kept[oldest].fd = fd;
	writer->kept[oldest].used = ++writer->clock;
}

int folder_open(struct image_directory *directory, struct writer_state *writer, uint32_t folder, struct image_error *err)
{
	uint32_t node = image_tree_folder_node(directory->tree, folder);
	char name[IMAGE_NAME_LONGEST + 1];
	int parent, fd;

	if (!node)
		return directory->request.root;
	for (int i = 0; i < KEPT_FOLDERS; i++)
		if (writer->kept[i].fd >= 0 && writer->kept[i].folder == folder) {
			writer->kept[i].used = ++writer->clock;
			return writer->kept[i].fd;
		}
	/* As deep as a path of 4,095 bytes: half as many calls at most. */
	parent = folder_open(directory, writer, folder_of(directory->tree, node), err);
	if (parent < 0)
		return -1;
	copy_name(directory->tree, node, name);
	if (ensure(directory, folder, node, parent, name, err))
		return -1;
	fd = openat(parent, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return fail_at(directory, node, "openat", errno, err);
	keep(writer, folder, fd);
	return fd;
}
