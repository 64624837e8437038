/* SPDX-License-Identifier: Apache-2.0 */
/* Gives memory for tables with millions of entries. Up to a limit it is plain memory, beyond that a mapped temporary
 * file, which the kernel can write out. merge_lists.c, tree.c and native/squashfs call it. */
#define _GNU_SOURCE
#include "spill.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* What was taken: some tables, and a piece for every 65,536 entries of others. */
struct allocation {
	void *memory;
	size_t size;
	off_t offset; /* in the file; -1: not of it */
};

struct image_spill {
	struct image_spill_meter meter; /* first: image_spill_tend knows no more */
	char *folder;
	size_t memory, mapped; /* bounds */
	size_t used;           /* bytes that are not of the file */
	int file;
	off_t end; /* of the file */
	size_t page;
	struct allocation *all;
	size_t n, capacity;
};

int image_spill_file(const char *folder)
{
	int fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	char path[4096];

	if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL))
		return fd;
	snprintf(path, sizeof(path), "%s/cellblock-records-XXXXXX", folder);
	fd = mkostemp(path, O_CLOEXEC);
	if (fd >= 0)
		unlink(path);
	return fd;
}

int image_spill_another(const struct image_spill *spill)
{
	return image_spill_file(spill->folder);
}

struct image_spill *image_spill_new(const char *folder, size_t memory, size_t mapped, struct image_error *err)
{
	struct image_spill *spill = calloc(1, sizeof(*spill));

	if (spill) {
		spill->folder = strdup(folder);
		spill->memory = memory;
		spill->mapped = mapped;
		spill->meter.fd = spill->file = -1;
		spill->page = (size_t)sysconf(_SC_PAGESIZE);
	}
	if (spill && spill->folder)
		return spill;
	image_spill_free(spill);
	image_fail_memory(err);
	return NULL;
}

void image_spill_free(struct image_spill *spill)
{
	if (!spill)
		return;
	for (size_t i = 0; i < spill->n; i++)
		munmap(spill->all[i].memory, spill->all[i].size);
	if (spill->file >= 0)
		close(spill->file);
	if (spill->meter.fd >= 0)
		close(spill->meter.fd);
	free(spill->all);
	free(spill->folder);
	free(spill);
}

/* The file, and what says how much of it is in memory. */
static int begin_file(struct image_spill *spill)
{
	if (spill->file < 0)
		spill->file = image_spill_file(spill->folder);
	/* Where there is no /proc, only the kernel takes anything back. */
	if (spill->file >= 0 && spill->meter.fd < 0)
		spill->meter.fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
	return spill->file < 0 ? -1 : 0;
}

static void *map_file(struct image_spill *spill, size_t size)
{
	int error;

	if (begin_file(spill))
		return MAP_FAILED;
	/* Room for all of it: where there is none, a later write would be a SIGBUS. */
	if ((error = posix_fallocate(spill->file, spill->end, (off_t)size))) {
		errno = error;
		return MAP_FAILED;
	}
	return mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, spill->file, spill->end);
}

void *image_spill_take(struct image_spill *spill, size_t size)
{
	struct allocation *one;
	bool plain;

	size = (size + spill->page - 1) / spill->page * spill->page;
	plain = size <= spill->memory - spill->used;
	if (spill->n == spill->capacity) {
		size_t capacity = spill->capacity ? 2 * spill->capacity : 64;
		struct allocation *all = reallocarray(spill->all, capacity, sizeof(*all));

		if (!all)
			return NULL;
		spill->all = all;
		spill->capacity = capacity;
	}
	one = &spill->all[spill->n];
	*one = (struct allocation){ .size = size, .offset = plain ? -1 : spill->end };
	one->memory = plain ? mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
			    : map_file(spill, size);
	if (one->memory == MAP_FAILED)
		return NULL;
	if (plain)
		spill->used += size;
	else
		spill->end += (off_t)size;
	spill->n++;
	return one->memory;
}

void image_spill_give(struct image_spill *spill, void *memory)
{
	size_t i = spill->n;

	while (memory && i && spill->all[i - 1].memory != memory)
		i--;
	if (!memory || !i)
		return;
	struct allocation one = spill->all[i - 1];

	munmap(one.memory, one.size);
	if (one.offset < 0)
		spill->used -= one.size;
	else /* where that is not known, the room is given back at the end */
		(void)fallocate(spill->file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, one.offset, (off_t)one.size);
	spill->all[i - 1] = spill->all[--spill->n];
}

void image_spill_look(struct image_spill *spill)
{
	unsigned long shared = 0;
	char text[128];
	ssize_t got = pread(spill->meter.fd, text, sizeof(text) - 1, 0);

	if (got <= 0)
		return;
	text[got] = '\0';
	/* All pages of files, libraries among them: some megabytes that make it earlier. */
	if (sscanf(text, "%*u %*u %lu", &shared) != 1 || shared * spill->page <= spill->mapped)
		return;
	for (size_t i = 0; i < spill->n; i++)
		if (spill->all[i].offset >= 0)
			madvise(spill->all[i].memory, spill->all[i].size, MADV_DONTNEED);
}
