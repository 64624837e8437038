#define _GNU_SOURCE
#include "records.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BUFFER ((size_t)256 << 10)

struct image_records {
	int records, extras;
	uint64_t flushed; /* bytes of the extras that are in the file */
	size_t used;
	unsigned char buffer[BUFFER];
};

static int nameless(const char *folder)
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

struct image_records *image_records_new(const char *folder, struct image_error *err)
{
	struct image_records *records = calloc(1, sizeof(*records));

	if (!records) {
		image_fail_memory(err);
		return NULL;
	}
	records->records = nameless(folder);
	records->extras = nameless(folder);
	if (records->records < 0 || records->extras < 0) {
		image_fail_call(err, folder, "open", errno);
		image_records_free(records);
		return NULL;
	}
	return records;
}

void image_records_free(struct image_records *records)
{
	if (!records)
		return;
	if (records->records >= 0)
		close(records->records);
	if (records->extras >= 0)
		close(records->extras);
	free(records);
}

static int write_at(int fd, const void *data, size_t length, uint64_t offset, struct image_error *err)
{
	while (length) {
		ssize_t done = pwrite(fd, data, length, (off_t)offset);

		if (done < 0 && errno == EINTR)
			continue;
		if (done < 0)
			return image_fail_call(err, "", "pwrite", errno);
		data = (const char *)data + done;
		length -= (size_t)done;
		offset += (uint64_t)done;
	}
	return 0;
}

/* What lies beyond the end of the file is zeros. */
static int read_at(int fd, void *data, size_t length, uint64_t offset, struct image_error *err)
{
	while (length) {
		ssize_t done = pread(fd, data, length, (off_t)offset);

		if (done < 0 && errno == EINTR)
			continue;
		if (done < 0)
			return image_fail_call(err, "", "pread", errno);
		if (!done) {
			memset(data, 0, length);
			return 0;
		}
		data = (char *)data + done;
		length -= (size_t)done;
		offset += (uint64_t)done;
	}
	return 0;
}

int image_records_flush(struct image_records *records, struct image_error *err)
{
	if (write_at(records->extras, records->buffer, records->used, records->flushed, err))
		return -1;
	records->flushed += records->used;
	records->used = 0;
	return 0;
}

static int append(struct image_records *records, const void *data, size_t length, struct image_error *err)
{
	if (length > BUFFER - records->used && image_records_flush(records, err))
		return -1;
	if (length > BUFFER) {
		if (write_at(records->extras, data, length, records->flushed, err))
			return -1;
		records->flushed += length;
		return 0;
	}
	if (length)
		memcpy(records->buffer + records->used, data, length);
	records->used += length;
	return 0;
}

int image_records_prepare(struct image_records *records, const struct image_entry *entry,
			  struct image_record *record, struct image_error *err)
{
	*record = (struct image_record){
		.size = entry->size, .mtime_ns = entry->mtime_ns,
		.extra = records->flushed + records->used,
		.target_length = (uint32_t)entry->target_length, .xattrs_length = (uint32_t)entry->xattrs_length,
		.mode = entry->mode, .uid = entry->uid, .gid = entry->gid,
		.major = entry->major, .minor = entry->minor, .known = 1,
	};
	if (append(records, entry->target, entry->target_length, err))
		return -1;
	return append(records, entry->xattrs, entry->xattrs_length, err);
}

int image_records_put(struct image_records *records, uint32_t node, const struct image_record *record,
		      struct image_error *err)
{
	return write_at(records->records, record, sizeof(*record), (uint64_t)node * sizeof(*record), err);
}

int image_records_get(struct image_records *records, uint32_t node, struct image_record *record,
		      struct image_error *err)
{
	return read_at(records->records, record, sizeof(*record), (uint64_t)node * sizeof(*record), err);
}

int image_records_extra(struct image_records *records, const struct image_record *record, unsigned char **buffer,
			size_t *room, struct image_error *err)
{
	size_t length = (size_t)record->target_length + record->xattrs_length;

	if (length + 1 > *room) {
		unsigned char *larger = realloc(*buffer, length + 1);

		if (!larger)
			return image_fail_memory(err);
		*buffer = larger;
		*room = length + 1;
	}
	return length ? read_at(records->extras, *buffer, length, record->extra, err) : 0;
}

void image_record_complete(struct image_record *record, uint32_t node)
{
	if (record->known && node != IMAGE_ROOT)
		return;
	record->mode = 0755;
	record->uid = record->gid = 0;
	record->size = 0;
}
