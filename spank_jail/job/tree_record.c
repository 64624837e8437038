/* SPDX-License-Identifier: Apache-2.0 */
/* Writes and compares the record of what a job's tree was mounted from, so that a later step may use it again.
 * open_step.c and job_mount_namespaces.c call it. */
#define _GNU_SOURCE
#include "tree_record.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "native/base/scoped.h"

/* Linux 6.8: an id that is never given to another mount. */
#ifndef STATX_MNT_ID_UNIQUE
#define STATX_MNT_ID_UNIQUE 0x4000U
#endif

/* A plan of a thousand lines with long paths; a larger file is not ours. */
#define MAX_SIZE (1 << 20)

/* Which file it is, and who may write it. For one of which the content counts, also when it was touched. */
struct identity {
	uint64_t mount, device, inode, owner, size, modified, changed;
};

/* Before the parts, each of which is: its head, and its text with the final zero. */
struct header {
	uint64_t version; /* of this layout: changes with the compiler's view of it */
	int64_t mounts;
	struct identity plan, root;
};

enum part { TEXT, PATH, CONTENT, VALUE };

struct part_head {
	uint64_t part; /* enum part */
	uint64_t length;
	struct identity identity; /* of a path */
};

static uint64_t nanoseconds(const struct statx_timestamp *time)
{
	return (uint64_t)time->tv_sec * 1000000000U + time->tv_nsec;
}

static int identify(int dir, const char *path, bool content, struct identity *identity)
{
	struct statx st;

	memset(identity, 0, sizeof(*identity));
	if (statx(dir, path, *path ? 0 : AT_EMPTY_PATH, STATX_BASIC_STATS | STATX_MNT_ID | STATX_MNT_ID_UNIQUE, &st))
		return -1;
	identity->mount = st.stx_mnt_id;
	identity->device = ((uint64_t)st.stx_dev_major << 32) | st.stx_dev_minor;
	identity->inode = st.stx_ino;
	identity->owner = ((uint64_t)st.stx_uid << 32) | st.stx_mode;
	if (content) {
		identity->size = st.stx_size;
		identity->modified = nanoseconds(&st.stx_mtime);
		identity->changed = nanoseconds(&st.stx_ctime);
	}
	return 0;
}

static int append_record(struct jail_record *record, const void *data, size_t size, struct jail_error *err)
{
	if (record->size + size > record->capacity) {
		size_t capacity = (record->capacity + size) * 2 + 1024;
		char *larger = realloc(record->data, capacity);
		if (!larger)
			return jail_fail(err, "realloc", ENOMEM, "not enough memory to note what the jail is made of");
		record->data = larger;
		record->capacity = capacity;
	}
	memcpy(record->data + record->size, data, size);
	record->size += size;
	return 0;
}

static int append_part(struct jail_record *record, enum part part, const struct identity *identity,
		       const char *text, struct jail_error *err)
{
	const struct part_head head = { part, strlen(text) + 1, *identity };

	return append_record(record, &head, sizeof(head), err) || append_record(record, text, head.length, err) ? -1 : 0;
}

int jail_record_begin(struct jail_record *record, int plan, int root, struct jail_error *err)
{
	struct header header = { .version = sizeof(header) + (sizeof(struct part_head) << 16), .mounts = -1 };

	memset(record, 0, sizeof(*record));
	record->mounts = -1;
	if (identify(plan, "", true, &header.plan) || identify(root, "", false, &header.root))
		return jail_fail(err, "statx", errno, "cannot look at the mount plan or the jail root");
	return append_record(record, &header, sizeof(header), err);
}

int jail_record_add_text(struct jail_record *record, const char *text, struct jail_error *err)
{
	static const struct identity none;

	return append_part(record, TEXT, &none, text, err);
}

int jail_record_add(struct jail_record *record, const char *path, bool content, struct jail_error *err)
{
	struct identity identity;

	(void)identify(AT_FDCWD, path, content, &identity); /* all zero: it is missing, and may come */
	return append_part(record, content ? CONTENT : PATH, &identity, path, err);
}

int jail_record_add_value(struct jail_record *record, const char *value, struct jail_error *err)
{
	static const struct identity none;

	return append_part(record, VALUE, &none, value, err);
}

int jail_record_store(const struct jail_record *record, int directory, const char *name, struct jail_error *err)
{
	struct header *header = (struct header *)(void *)record->data;
	char temporary[64];

	header->mounts = record->mounts;
	snprintf(temporary, sizeof(temporary), "%s.new", name);
	scoped_fd fd = openat(directory, temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0 || write(fd, record->data, record->size) != (ssize_t)record->size ||
	    renameat(directory, temporary, directory, name))
		return jail_fail(err, "write", errno, "cannot note what the jail is made of");
	return 0;
}

/* The part at `at`, whole or not at all: a full disk of memory must not make us read beyond the end. */
static const char *part_at(const char *data, size_t size, size_t at, struct part_head *head)
{
	if (at > size || size - at < sizeof(*head))
		return NULL;
	memcpy(head, data + at, sizeof(*head));
	const char *text = data + at + sizeof(*head);
	return head->length && head->length <= size - at - sizeof(*head) && !text[head->length - 1] ? text : NULL;
}

static bool part_holds(const struct part_head *head, const char *text)
{
	struct identity now;

	if (head->part == VALUE)
		return true;
	/* More text than the step's own: options that it has not. */
	if (head->part == TEXT)
		return false;
	(void)identify(AT_FDCWD, text, head->part == CONTENT, &now);
	return !memcmp(&now, &head->identity, sizeof(now));
}

static bool parts_hold(const char *data, size_t size, size_t at)
{
	struct part_head head;

	while (at < size) {
		const char *text = part_at(data, size, at, &head);
		if (!text || !part_holds(&head, text))
			return false;
		at += sizeof(head) + head.length;
	}
	return true;
}

const char *jail_record_value(const struct jail_record *record, const char *after)
{
	struct part_head head;
	size_t at = after ? (size_t)(after - record->data) + strlen(after) + 1 : sizeof(struct header);
	const char *text;

	while ((text = part_at(record->data, record->size, at, &head)) && head.part != VALUE)
		at += sizeof(head) + head.length;
	return text;
}

/* Reads the whole file; NULL when there is none, or it is not ours. */
static char *load(int directory, const char *name, size_t *size)
{
	scoped_fd fd = openat(directory, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) || st.st_size <= 0 || st.st_size > MAX_SIZE)
		return NULL;
	char *data = malloc((size_t)st.st_size);
	if (data && read(fd, data, (size_t)st.st_size) != st.st_size) {
		free(data);
		return NULL;
	}
	*size = (size_t)st.st_size;
	return data;
}

bool jail_record_holds(struct jail_record *record, int directory, const char *name)
{
	struct header *header = (struct header *)(void *)record->data;
	struct header stored;
	size_t size = 0;
	scoped_free char *data = load(directory, name, &size);

	if (!data || size < record->size)
		return false;
	memcpy(&stored, data, sizeof(stored));
	header->mounts = stored.mounts;
	if (memcmp(data, record->data, record->size) || !parts_hold(data, size, record->size))
		return false;
	free(record->data);
	*record = (struct jail_record){ .data = data, .size = size, .capacity = size, .mounts = (int)stored.mounts };
	data = NULL;
	return true;
}

void jail_record_free(struct jail_record *record)
{
	free(record->data);
	memset(record, 0, sizeof(*record));
}
