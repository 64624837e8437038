/* SPDX-License-Identifier: Apache-2.0 */
/* Does what comes after all files of an image are written to a directory: hard links, empty directories, and the
 * metadata of all directories. native/volume and enroot/importing call it. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "parts.h"
#include "native/layers/scoped.h"

#define MOST_TOGETHER 64

/* A range of the links or directories. */
struct range {
	struct image_job job;
	struct image_directory *directory;
	uint32_t from, to;
	int (*one)(struct image_directory *directory, struct writer_state *writer, uint32_t number, struct image_error *err);
};

static int range_run(struct image_job *job, void *state, bool stopped, struct image_error *err)
{
	struct range *range = (struct range *)job;
	int result = 0;

	for (uint32_t i = range->from; i < range->to && !stopped && !result; i++)
		result = range->one(range->directory, state, i, err);
	free(range);
	return result;
}

static int for_all(struct image_directory *directory, uint32_t count,
		   int (*one)(struct image_directory *, struct writer_state *, uint32_t, struct image_error *),
		   struct image_error *err)
{
	uint32_t together = count / (4 * (directory->request.jobs + 1)) + 1;

	together = together < MOST_TOGETHER ? together : MOST_TOGETHER;
	for (uint32_t from = 0; from < count; from += together) {
		struct range *range = calloc(1, sizeof(*range));

		if (!range)
			return image_fail_memory(err);
		*range = (struct range){ { range_run, NULL }, directory, from,
					 count - from < together ? count : from + together, one };
		if (thread_pool_put(directory->work, &range->job, err))
			return -1;
	}
	return thread_pool_drain(directory->work, err);
}

/* Where there are no hard links. */
static int copy(struct image_directory *directory, struct writer_state *writer, uint32_t node, int from_folder, const char *from,
		int to_folder, const char *to, struct image_error *err)
{
	const struct image_node *one = image_tree_node(directory->tree, node);
	struct image_record record;
	scoped_fd in = openat(from_folder, from, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	scoped_fd out = in < 0 ? -1 : openat(to_folder, to, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	char buffer[65536];
	ssize_t got = 0;

	if (out < 0)
		return fail_at(directory, node, "openat", errno, err);
	while (!atomic_load(thread_pool_stopped(directory->work)) && (got = read(in, buffer, sizeof(buffer))) > 0)
		if (write(out, buffer, (size_t)got) != got)
			return fail_at(directory, node, "write", errno, err);
	if (atomic_load(thread_pool_stopped(directory->work)))
		return image_fail(err, IMAGE_FAULT_CANCELLED, "", "stopped");
	if (got < 0 || image_records_get(directory->records, one->link, &record, err) ||
	    image_records_extra(directory->records, &record, &writer->buffer, &writer->capacity, err) ||
	    fchmod(out, record.mode & 0777))
		return fail_at(directory, node, "read", errno, err);
	return set_metadata(directory, node, to_folder, to, out, one->kind, &record,
			    writer->buffer + record.target_length, err);
}

/* Likewise of a symbolic link, fifo or device: another one like it. */
static int copy_special(struct image_directory *directory, struct writer_state *writer, uint32_t node, struct image_error *err)
{
	struct item item = { .node = node, .folder = folder_of(directory->tree, node),
			     .kind = image_tree_node(directory->tree, node)->kind };
	int result;

	if (image_records_get(directory->records, image_tree_node(directory->tree, node)->link, &item.record, err) ||
	    image_records_extra(directory->records, &item.record, &writer->buffer, &writer->capacity, err))
		return -1;
	item.target = strndup((const char *)writer->buffer, item.record.target_length);
	if (!item.target)
		return image_fail_memory(err);
	item.xattrs = writer->buffer + item.record.target_length;
	result = write_special(directory, writer, &item, err);
	free(item.target);
	return result;
}

static bool is_same(int a_folder, const char *a, int b_folder, const char *b)
{
	struct stat x, y;

	return !fstatat(a_folder, a, &x, AT_SYMLINK_NOFOLLOW) && !fstatat(b_folder, b, &y, AT_SYMLINK_NOFOLLOW) &&
	       x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

static int make_link(struct image_directory *directory, struct writer_state *writer, uint32_t number, struct image_error *err)
{
	uint32_t node = directory->links[number], primary = image_tree_node(directory->tree, node)->link;
	char from[IMAGE_NAME_LONGEST + 1], to[IMAGE_NAME_LONGEST + 1];
	int from_folder, to_folder, result;

	/* It may have taken its file over meanwhile, or been replaced. */
	if (image_tree_node(directory->tree, node)->kind == 'd' || primary == node ||
	    !image_directory_has(directory, node))
		return 0;
	to_folder = folder_open(directory, writer, folder_of(directory->tree, node), err);
	if (to_folder < 0)
		return -1;
	to_folder = openat(to_folder, ".", O_PATH | O_DIRECTORY | O_CLOEXEC); /* the next call may close it */
	scoped_fd held = to_folder;

	if (held < 0)
		return fail_at(directory, node, "openat", errno, err);
	from_folder = folder_open(directory, writer, folder_of(directory->tree, primary), err);
	if (from_folder < 0)
		return -1;
	copy_name(directory->tree, primary, from);
	copy_name(directory->tree, node, to);
	result = linkat(from_folder, from, held, to, 0);
	if (result && errno == EEXIST) {
		if (is_same(from_folder, from, held, to))
			return 0;
		if (directory->request.resume && !unlinkat(held, to, 0))
			result = linkat(from_folder, from, held, to, 0);
	}
	if (!result)
		return 0;
	if (!cannot_hold(errno) && errno != EMLINK)
		return fail_at(directory, node, "linkat", errno, err);
	if (lose(directory, IMAGE_LOSS_HARDLINK, node, errno, err))
		return -1;
	return image_tree_node(directory->tree, node)->kind == 'f'
		       ? copy(directory, writer, node, from_folder, from, held, to, err)
		       : copy_special(directory, writer, node, err);
}

static bool is_in_tree(const struct image_directory *directory, uint32_t folder, uint32_t *node)
{
	*node = image_tree_folder_node(directory->tree, folder);
	return image_tree_node(directory->tree, *node)->kind == 'd' &&
	       image_tree_node(directory->tree, *node)->link == folder;
}

static int make_folder(struct image_directory *directory, struct writer_state *writer, uint32_t folder, struct image_error *err)
{
	uint32_t node;

	if (!is_in_tree(directory, folder, &node) || !image_directory_has(directory, node))
		return 0;
	return folder_open(directory, writer, folder, err) < 0 ? -1 : 0;
}

int image_directory_finish(struct image_directory *directory, struct image_error *err)
{
	if (directory_flush(directory, err) || thread_pool_drain(directory->work, err) ||
	    image_records_flush(directory->records, err))
		return -1;
	if (directory->request.pick)
		return 0;
	if (for_all(directory, (uint32_t)directory->n_links, make_link, err))
		return -1;
	return for_all(directory, image_tree_folders(directory->tree), make_folder, err);
}

static int seal_folder(struct image_directory *directory, struct writer_state *writer, uint32_t folder, struct image_error *err)
{
	struct image_record record;
	uint32_t node;
	int kept;

	if (!is_in_tree(directory, folder, &node))
		return 0;
	kept = folder_open(directory, writer, folder, err);
	if (kept < 0 || image_records_get(directory->records, node, &record, err))
		return -1;
	image_record_complete(&record, node);
	if (image_records_extra(directory->records, &record, &writer->buffer, &writer->capacity, err))
		return -1;
	scoped_fd fd = openat(kept, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return fail_at(directory, node, "openat", errno, err);
	return set_metadata(directory, node, -1, "", fd, 'd', &record, writer->buffer + record.target_length, err);
}

int image_directory_seal(struct image_directory *directory, struct image_error *err)
{
	return for_all(directory, image_tree_folders(directory->tree), seal_folder, err);
}
