/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a directory on disk as a sorted series of entries with content, in the form in which the tar reader gives a
 * layer's. assembly.c calls it. */
#define _GNU_SOURCE
#include "walk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "native/layers/scoped.h"
#include "native/layers/xattrs.h"

struct level {
	int fd;
	char **names;
	size_t count, next, path_length; /* of the directory's own path */
};

/* First name of a file that has several. */
struct linked {
	dev_t device;
	ino_t inode;
	char *path;
};

struct image_walk {
	struct level *levels;
	size_t depth, capacity;
	bool began;
	struct linked *linked; /* by hash of the inode; a power of two of places */
	size_t n_linked, linked_capacity;
	struct image_pool *pool;
	const struct image_interrupt *interrupt;
	struct image_block *block;
	atomic_ullong *counter;
	int fd; /* of the file that is read */
	uint64_t position, hole; /* data up to `hole` */
	struct image_entry entry;
	struct image_xattrs xattrs;
	char path[IMAGE_PATH_LONGEST + 1], target[IMAGE_PATH_LONGEST + 1];
};

static int failed(const struct image_walk *walk, const char *call, struct image_error *err)
{
	return image_fail_call(err, walk->path, call, errno);
}

static int compare(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static int list(struct image_walk *walk, struct level *level, struct image_error *err)
{
	int fd = openat(level->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *stream = fd < 0 ? NULL : fdopendir(fd);
	size_t capacity = 0;
	struct dirent *one;
	int result = 0;

	if (!stream) {
		if (fd >= 0)
			close(fd);
		return failed(walk, "opendir", err);
	}
	while (!result && (errno = 0, one = readdir(stream))) {
		if (!strcmp(one->d_name, ".") || !strcmp(one->d_name, ".."))
			continue;
		if (level->count == capacity) {
			char **names = reallocarray(level->names, capacity = capacity ? 2 * capacity : 32, sizeof(char *));

			if (!names) {
				result = image_fail_memory(err);
				break;
			}
			level->names = names;
		}
		level->names[level->count] = strdup(one->d_name);
		if (!level->names[level->count])
			result = image_fail_memory(err);
		else
			level->count++;
	}
	if (!result && errno)
		result = failed(walk, "readdir", err);
	closedir(stream);
	if (level->count)
		qsort(level->names, level->count, sizeof(char *), compare);
	return result;
}

/* Takes the descriptor over. */
static int push(struct image_walk *walk, int fd, size_t path_length, struct image_error *err)
{
	struct level *level;

	if (walk->depth == walk->capacity) {
		size_t capacity = walk->capacity ? 2 * walk->capacity : 32;
		struct level *levels = reallocarray(walk->levels, capacity, sizeof(*levels));

		if (!levels) {
			close(fd);
			return image_fail_memory(err);
		}
		walk->levels = levels;
		walk->capacity = capacity;
	}
	level = &walk->levels[walk->depth++];
	*level = (struct level){ .fd = fd, .path_length = path_length };
	return list(walk, level, err);
}

static void pop(struct image_walk *walk)
{
	struct level *level = &walk->levels[--walk->depth];

	for (size_t i = 0; i < level->count; i++)
		free(level->names[i]);
	free(level->names);
	close(level->fd);
}

struct image_walk *image_walk_new(const char *path, struct image_pool *pool, atomic_ullong *counter,
				  const struct image_interrupt *interrupt, struct image_error *err)
{
	struct image_walk *walk = calloc(1, sizeof(*walk));
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (!walk || fd < 0) {
		if (fd >= 0)
			close(fd);
		free(walk);
		image_fail_call(err, path, "open", walk ? errno : ENOMEM);
		return NULL;
	}
	walk->pool = pool;
	walk->interrupt = interrupt;
	walk->counter = counter;
	walk->fd = -1;
	if (push(walk, fd, 0, err)) {
		image_walk_free(walk);
		return NULL;
	}
	return walk;
}

void image_walk_free(struct image_walk *walk)
{
	if (!walk)
		return;
	while (walk->depth)
		pop(walk);
	for (size_t i = 0; i < walk->linked_capacity; i++)
		free(walk->linked[i].path);
	free(walk->linked);
	free(walk->levels);
	image_block_release(walk->block);
	image_close(&walk->fd);
	image_xattrs_free(&walk->xattrs);
	free(walk);
}

static struct linked *place(struct linked *all, size_t capacity, dev_t device, ino_t inode)
{
	size_t at = (size_t)((inode ^ device << 20) * 0x9e3779b97f4a7c15u >> 20) & (capacity - 1);

	while (all[at].path && (all[at].device != device || all[at].inode != inode))
		at = (at + 1) & (capacity - 1);
	return &all[at];
}

/* 1: `*first` is the name that came first. 0: this one is. -1. */
static int known_link(struct image_walk *walk, const struct stat *status, const char **first, struct image_error *err)
{
	struct linked *one;

	if (2 * walk->n_linked >= walk->linked_capacity) {
		size_t capacity = walk->linked_capacity ? 2 * walk->linked_capacity : 256;
		struct linked *all = calloc(capacity, sizeof(*all));

		if (!all)
			return image_fail_memory(err);
		for (size_t i = 0; i < walk->linked_capacity; i++)
			if (walk->linked[i].path)
				*place(all, capacity, walk->linked[i].device, walk->linked[i].inode) = walk->linked[i];
		free(walk->linked);
		walk->linked = all;
		walk->linked_capacity = capacity;
	}
	one = place(walk->linked, walk->linked_capacity, status->st_dev, status->st_ino);
	*first = one->path;
	if (one->path)
		return 1;
	*one = (struct linked){ status->st_dev, status->st_ino, strdup(walk->path) };
	walk->n_linked++;
	return one->path ? 0 : image_fail_memory(err);
}

static int read_xattrs(struct image_walk *walk, const char *where, struct image_error *err)
{
	char names[65536], *end;
	unsigned char value[65536];
	ssize_t length = llistxattr(where, names, sizeof(names)), size;

	image_xattrs_clear(&walk->xattrs);
	if (length < 0)
		return errno == EOPNOTSUPP ? 0 : failed(walk, "llistxattr", err);
	end = names + length;
	for (const char *name = names; name < end; name += strlen(name) + 1) {
		if (!image_xattr_is_kept(name, strlen(name)))
			continue;
		size = lgetxattr(where, name, value, sizeof(value));
		if (size < 0)
			return failed(walk, "lgetxattr", err);
		if (image_xattrs_set(&walk->xattrs, name, strlen(name), value, (size_t)size))
			return image_fail_memory(err);
	}
	return 0;
}

static char kind_of(mode_t mode)
{
	return S_ISREG(mode) ? 'f' : S_ISDIR(mode) ? 'd' : S_ISLNK(mode) ? 'l' : S_ISFIFO(mode) ? 'p' :
	       S_ISCHR(mode) ? 'c' : S_ISBLK(mode) ? 'b' : 0;
}

/* Fills the entry from what is at `name` in `folder`, whose path below the root is in walk->path. */
static int describe(struct image_walk *walk, int folder, const char *name, const struct stat *status,
		    struct image_error *err)
{
	struct image_entry *entry = &walk->entry;
	char where[sizeof("/proc/self/fd//") + 3 * sizeof(int) + IMAGE_NAME_LONGEST];
	const char *first;
	int known = 0;

	/* As in a tar: 2^63 ns are 292 years. */
	if (status->st_mtim.tv_sec > INT64_MAX / 1000000000 - 1 || status->st_mtim.tv_sec < INT64_MIN / 1000000000 + 1)
		return image_fail(err, IMAGE_FAULT_SOURCE, walk->path, "its time is before 1678 or after 2262");
	*entry = (struct image_entry){
		.kind = kind_of(status->st_mode), .path = walk->path, .path_length = strlen(walk->path),
		.target = "", .mode = status->st_mode & 07777, .uid = status->st_uid, .gid = status->st_gid,
		.mtime_ns = status->st_mtim.tv_sec * 1000000000 + status->st_mtim.tv_nsec,
	};
	if (entry->kind != 'd' && status->st_nlink > 1)
		known = known_link(walk, status, &first, err);
	if (known < 0)
		return -1;
	if (known) {
		entry->kind = 'h';
		entry->target = first;
		entry->target_length = strlen(first);
		return 1;
	}
	if (entry->kind == 'c' || entry->kind == 'b') {
		entry->major = major(status->st_rdev);
		entry->minor = minor(status->st_rdev);
	} else if (entry->kind == 'l') {
		ssize_t length = readlinkat(folder, name, walk->target, IMAGE_PATH_LONGEST + 1);

		if (length < 0 || length > IMAGE_PATH_LONGEST)
			return failed(walk, "readlinkat", err);
		walk->target[length] = 0;
		entry->target = walk->target;
		entry->size = entry->target_length = (size_t)length;
		entry->mode = 0777;
	} else if (entry->kind == 'f') {
		entry->size = entry->stored = (uint64_t)status->st_size;
		entry->sparse = (uint64_t)status->st_blocks * 512 < entry->size;
	}
	snprintf(where, sizeof(where), "/proc/self/fd/%d/%s", folder, name);
	if (read_xattrs(walk, where, err))
		return -1;
	entry->xattrs = walk->xattrs.data;
	entry->xattrs_length = walk->xattrs.length;
	return 1;
}

static int open_file(struct image_walk *walk, int folder, const char *name, struct image_error *err)
{
	struct stat status;

	walk->fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (walk->fd < 0 || fstat(walk->fd, &status))
		return failed(walk, "openat", err);
	if ((uint64_t)status.st_size != walk->entry.size ||
	    status.st_mtim.tv_sec * 1000000000 + status.st_mtim.tv_nsec != walk->entry.mtime_ns)
		return image_fail(err, IMAGE_FAULT_CHANGED, walk->path, "changed in the source while it was read");
	walk->position = 0;
	walk->hole = walk->entry.sparse ? 0 : walk->entry.size;
	return 0;
}

int image_walk_next(struct image_walk *walk, const struct image_entry **entry, struct image_error *err)
{
	struct level *level;
	struct stat status;
	const char *name;
	int result;

	image_close(&walk->fd);
	*entry = &walk->entry;
	if (!walk->began) {
		walk->began = true;
		if (fstat(walk->levels[0].fd, &status))
			return failed(walk, "fstat", err);
		return describe(walk, walk->levels[0].fd, ".", &status, err);
	}
	do {
		while (walk->depth && walk->levels[walk->depth - 1].next == walk->levels[walk->depth - 1].count)
			pop(walk);
		if (!walk->depth)
			return 0;
		level = &walk->levels[walk->depth - 1];
		name = level->names[level->next++];
		if (level->path_length + strlen(name) + 2 > sizeof(walk->path)) {
			errno = ENAMETOOLONG;
			return failed(walk, "openat", err);
		}
		sprintf(walk->path + level->path_length, "%s%s", level->path_length ? "/" : "", name);
		if (fstatat(level->fd, name, &status, AT_SYMLINK_NOFOLLOW))
			return failed(walk, "fstatat", err);
	} while (!kind_of(status.st_mode));
	result = describe(walk, level->fd, name, &status, err);
	if (result <= 0)
		return result;
	if (walk->entry.kind == 'f' && open_file(walk, level->fd, name, err))
		return -1;
	if (walk->entry.kind == 'd') {
		int fd = openat(level->fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

		if (fd < 0)
			return failed(walk, "openat", err);
		if (push(walk, fd, strlen(walk->path), err))
			return -1;
	}
	return 1;
}

int image_walk_data(void *context, struct image_slice *slice, struct image_error *err)
{
	struct image_walk *walk = context;
	struct image_block *block = walk->block;
	size_t part;
	ssize_t got;

	if (walk->position == walk->hole && walk->position < walk->entry.size) {
		off_t data = lseek(walk->fd, (off_t)walk->position, SEEK_DATA), hole;

		if (data < 0 && errno == ENXIO)
			return 0; /* a hole up to the end */
		hole = data < 0 ? -1 : lseek(walk->fd, data, SEEK_HOLE);
		if (hole < 0)
			return failed(walk, "lseek", err);
		walk->position = (uint64_t)data;
		walk->hole = (uint64_t)hole;
	}
	if (walk->position >= walk->entry.size)
		return 0;
	/* Files share a block; one that fits into a block is not cut in two. */
	part = walk->hole - walk->position < IMAGE_BLOCK_SIZE ? (size_t)(walk->hole - walk->position) : IMAGE_BLOCK_SIZE;
	if (!block || IMAGE_BLOCK_SIZE - block->length < part) {
		image_block_release(block);
		walk->block = block = image_block_await(walk->pool, walk->interrupt, err);
		if (!block)
			return -1;
	}
	got = pread(walk->fd, block->data + block->length, part, (off_t)walk->position);
	if (got < 0)
		return failed(walk, "pread", err);
	if (!got)
		return image_fail(err, IMAGE_FAULT_CHANGED, walk->path, "changed in the source while it was read");
	*slice = (struct image_slice){ block->data + block->length, (size_t)got, walk->position, block };
	block->length += (size_t)got;
	walk->position += (uint64_t)got;
	atomic_fetch_add(walk->counter, (unsigned long long)got);
	return 1;
}
