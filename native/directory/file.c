/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the content of one file, checks its digest and sets its metadata, in a thread. directory.c queues it. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "parts.h"
#include "native/layers/hash.h"
#include "native/layers/scoped.h"

/* A part of a large file that waits for the thread that writes the file. */
struct part {
	struct part *next;
	const unsigned char *data;
	size_t length;
	uint64_t offset;
	struct image_block *block;
};

/* A file that comes in parts: written by one thread while its later parts are still read. */
struct stream_file {
	struct image_job job;
	struct image_directory *directory;
	struct item item;
	pthread_mutex_t mutex;
	pthread_cond_t added;
	struct part *first, **last;
	bool ended, whole; /* whole: ended, and not because reading failed */
	unsigned owners;
};

void item_release(struct image_directory *directory, struct item *item)
{
	if (item->copy)
		atomic_fetch_sub(&directory->copied, item->record.size);
	image_block_release(item->block);
	free(item->copy);
	free(item->target);
	item->block = NULL;
	item->copy = NULL;
	item->target = NULL;
}

int copy_name(const struct image_tree *tree, uint32_t node, char name[IMAGE_NAME_LONGEST + 1])
{
	size_t length = image_tree_node(tree, node)->name_length;

	memcpy(name, image_tree_name(tree, node), length);
	name[length] = 0;
	return (int)length;
}

uint32_t folder_of(const struct image_tree *tree, uint32_t node)
{
	return image_tree_node(tree, image_tree_node(tree, node)->parent)->link;
}

static int create(struct image_directory *directory, const struct item *item, int folder, const char *name,
		  struct image_error *err)
{
	int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
	int fd = openat(folder, name, flags, item->record.mode & 0777);

	if (fd < 0 && errno == EEXIST && directory->request.resume && !unlinkat(folder, name, 0))
		fd = openat(folder, name, flags, item->record.mode & 0777);
	return fd < 0 ? fail_at(directory, item->node, "openat", errno, err) : fd;
}

int write_all(struct image_directory *directory, const struct item *item, int fd, const unsigned char *data,
	      size_t length, uint64_t offset, struct image_error *err)
{
	while (length) {
		ssize_t done = pwrite(fd, data, length, (off_t)offset);

		if (done < 0 && errno == EINTR)
			continue;
		if (done <= 0)
			return fail_at(directory, item->node, "pwrite", done ? errno : ENOSPC, err);
		data += done;
		length -= (size_t)done;
		offset += (uint64_t)done;
	}
	return 0;
}

/* On NFS only this says that the server has no room. */
int close_file(const struct image_directory *directory, const struct item *item, int *fd, struct image_error *err)
{
	int result = close(*fd) && errno != EINTR ? fail_at(directory, item->node, "close", errno, err) : 0;

	*fd = -1;
	return result;
}

static int complete(struct image_directory *directory, const struct item *item, int folder, const char *name, int *fd,
		    struct image_error *err)
{
	int result = set_metadata(directory, item->node, folder, name, *fd, item->kind, &item->record, item->xattrs, err);

	return result ? result : close_file(directory, item, fd, err);
}

int write_small(struct image_directory *directory, struct writer_state *writer, const struct item *item,
		struct image_error *err)
{
	char name[IMAGE_NAME_LONGEST + 1];
	int folder = folder_open(directory, writer, item->folder, err);
	scoped_fd fd = -1;

	if (folder < 0)
		return -1;
	copy_name(directory->tree, item->node, name);
	if (directory->request.resume && is_whole(folder, name, item) && has_content(folder, name, item)) {
		atomic_fetch_add(&directory->counts.kept, 1);
		return 0;
	}
	fd = create(directory, item, folder, name, err);
	if (fd < 0 || write_all(directory, item, fd, item->data, item->record.size, 0, err))
		return -1;
	return complete(directory, item, folder, name, &fd, err);
}

static int make_special(const struct item *item, int folder, const char *name)
{
	const struct image_record *record = &item->record;

	if (item->kind == 'l')
		return symlinkat(item->target, folder, name);
	if (item->kind == 'p')
		return mkfifoat(folder, name, record->mode & 0777);
	return mknodat(folder, name, (item->kind == 'c' ? S_IFCHR : S_IFBLK) | (record->mode & 0777),
		       makedev(record->major, record->minor));
}

int write_special(struct image_directory *directory, struct writer_state *writer, const struct item *item,
		  struct image_error *err)
{
	char name[IMAGE_NAME_LONGEST + 1];
	int folder = folder_open(directory, writer, item->folder, err), result;

	if (folder < 0)
		return -1;
	copy_name(directory->tree, item->node, name);
	if (directory->request.resume && is_whole(folder, name, item)) {
		char text[IMAGE_PATH_LONGEST + 1];
		ssize_t length = item->kind == 'l' ? readlinkat(folder, name, text, sizeof(text)) : 0;

		if (item->kind != 'l' || (length == (ssize_t)item->record.target_length &&
					  !memcmp(text, item->target, (size_t)length)))
			return 0;
	}
	result = make_special(item, folder, name);
	if (result && errno == EEXIST && directory->request.resume && !unlinkat(folder, name, 0))
		result = make_special(item, folder, name);
	if (result && cannot_hold(errno))
		return lose(directory, item->kind == 'l' ? IMAGE_LOSS_SYMLINK : item->kind == 'p' ? IMAGE_LOSS_FIFO
				       : IMAGE_LOSS_DEVICE, item->node, errno, err);
	if (result)
		return fail_at(directory, item->node, item->kind == 'l' ? "symlinkat" : "mknodat", errno, err);
	return set_metadata(directory, item->node, folder, name, -1, item->kind, &item->record, item->xattrs, err);
}

/* The next part, which the caller owns; NULL: the file has ended. */
static struct part *next_part(struct stream_file *file)
{
	struct part *part;
	scoped_lock(&file->mutex);

	while (!file->first && !file->ended)
		pthread_cond_wait(&file->added, &file->mutex);
	part = file->first;
	if (part) {
		file->first = part->next;
		if (!file->first)
			file->last = &file->first;
	}
	return part;
}

static void drop(struct stream_file *file)
{
	bool last;

	{
		scoped_lock(&file->mutex);
		last = --file->owners == 0;
	}
	if (!last)
		return;
	for (struct part *part = file->first, *next; part; part = next) {
		next = part->next;
		image_block_release(part->block);
		free(part);
	}
	item_release(file->directory, &file->item);
	pthread_cond_destroy(&file->added);
	pthread_mutex_destroy(&file->mutex);
	free(file);
}

/* Writes a part and the hole before it, or what of both an earlier run has not: then it was `mended`. */
static int put_part(struct stream_file *file, int fd, const struct part *part, uint64_t position, bool *mended,
		    struct image_error *err)
{
	if (!mended)
		return write_all(file->directory, &file->item, fd, part->data, part->length, part->offset, err);
	if (mend_hole(file->directory, &file->item, fd, position, part->offset, mended, err))
		return -1;
	return mend_part(file->directory, &file->item, fd, part->data, part->length, part->offset, mended, err);
}

static int hash_hole(struct stream_file *file, struct image_hash *hash, uint64_t length, struct image_error *err)
{
	if (!image_hash_add_zeros(hash, length, thread_pool_stopped(file->directory->work)))
		return 0;
	return image_fail(err, IMAGE_FAULT_CANCELLED, "", "stopped");
}

/* Takes every part until the end, also when writing has failed: who adds them must not wait for blocks.
 * `mended`: the file is there and gets only what differs; NULL: it is new. */
static int write_parts(struct stream_file *file, int fd, bool failed, bool *mended, struct image_error *err)
{
	struct image_hash hash;
	uint64_t position = 0;
	int result = failed ? -1 : image_hash_begin(&hash) ? image_fail_memory(err) : 0;
	bool hashing = !result;

	for (struct part *part; (part = next_part(file));) {
		if (!result) {
			result = hash_hole(file, &hash, part->offset - position, err);
			image_hash_add(&hash, part->data, part->length);
			if (!result && fd >= 0)
				result = put_part(file, fd, part, position, mended, err);
			position = part->offset + part->length;
		}
		image_block_release(part->block);
		free(part);
	}
	if (!result && !file->whole)
		result = image_fail(err, IMAGE_FAULT_CANCELLED, "", "stopped");
	if (!result && position != file->item.record.size) {
		result = hash_hole(file, &hash, file->item.record.size - position, err);
		if (!result && fd >= 0 && mended)
			result = mend_hole(file->directory, &file->item, fd, position, file->item.record.size, mended,
					   err);
		else if (!result && fd >= 0 && ftruncate(fd, (off_t)file->item.record.size))
			result = fail_at(file->directory, file->item.node, "ftruncate", errno, err);
	}
	if (hashing)
		image_hash_end(&hash, file->item.record.digest);
	return result;
}

static int pick_stream(struct stream_file *file, bool stopped, struct image_error *err)
{
	struct image_directory *directory = file->directory;
	char name[32];
	scoped_fd fd = stopped ? -1 : pick_create(directory, &file->item, name, err);
	bool failed = fd < 0;

	if (write_parts(file, fd, failed, NULL, err))
		return stopped ? 0 : -1;
	if (pick_end(directory, &file->item, name, &fd, err))
		return -1;
	return image_records_put(directory->records, file->item.node, &file->item.record, err);
}

static int write_stream(struct stream_file *file, struct writer_state *writer, bool stopped, struct image_error *err)
{
	struct image_directory *directory = file->directory;
	struct item *item = &file->item;
	char name[IMAGE_NAME_LONGEST + 1];
	int folder = stopped ? -1 : folder_open(directory, writer, item->folder, err), result;
	bool kept = false, mended = false;
	scoped_fd fd = -1;

	copy_name(directory->tree, item->node, name);
	if (folder >= 0 && directory->request.resume && is_whole(folder, name, item))
		fd = openat(folder, name, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
	kept = fd >= 0;
	if (folder >= 0 && !kept)
		fd = create(directory, item, folder, name, err);
	result = write_parts(file, fd, fd < 0, kept ? &mended : NULL, err);
	if (result || stopped)
		return stopped ? 0 : result;
	if (kept && !mended)
		atomic_fetch_add(&directory->counts.kept, 1);
	else if (complete(directory, item, folder, name, &fd, err))
		return -1;
	atomic_fetch_add(&directory->counts.files, 1);
	atomic_fetch_add(&directory->counts.bytes, item->record.size);
	return image_records_put(directory->records, item->node, &item->record, err);
}

static int stream_run(struct image_job *job, void *state, bool stopped, struct image_error *err)
{
	struct stream_file *file = (struct stream_file *)job;
	int result = file->directory->request.pick ? pick_stream(file, stopped, err)
						   : write_stream(file, state, stopped, err);

	drop(file);
	return result;
}

struct stream_file *stream_file_new(struct image_directory *directory, const struct item *item)
{
	struct stream_file *file = calloc(1, sizeof(*file));

	if (!file)
		return NULL;
	file->job.run = stream_run;
	file->directory = directory;
	file->item = *item;
	file->last = &file->first;
	file->owners = 2; /* who adds parts, and who writes them */
	pthread_mutex_init(&file->mutex, NULL);
	pthread_cond_init(&file->added, NULL);
	return file;
}

struct image_job *stream_file_job(struct stream_file *file)
{
	return &file->job;
}

int stream_file_add(struct stream_file *file, const struct image_slice *slice, struct image_error *err)
{
	struct part *part = malloc(sizeof(*part));

	if (!part)
		return image_fail_memory(err);
	*part = (struct part){ NULL, slice->data, slice->length, slice->offset, image_block_hold(slice->block) };
	scoped_lock(&file->mutex);
	*file->last = part;
	file->last = &part->next;
	pthread_cond_signal(&file->added);
	return 0;
}

void stream_file_end(struct stream_file *file, bool whole)
{
	{
		scoped_lock(&file->mutex);
		file->ended = true;
		file->whole = whole;
		pthread_cond_signal(&file->added);
	}
	drop(file);
}
