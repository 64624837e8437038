/* SPDX-License-Identifier: Apache-2.0 */
/* Stores metadata and digest of each file of an image in an unnamed temporary file, so that millions of them stay out
 * of memory. listing.c, native/directory and native/squashfs call it. */
#define _GNU_SOURCE
#include "records.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "scoped.h"
#include "write_at.h"

#define RECORDS_BUFFER ((size_t)256 << 10)
#define LATER 512u
/* Bytes that image_records_load reads of each file: 380,000 entries; a call for each would take as long as all
 * else. */
#define LOADED_MOST ((uint64_t)32 << 20)

struct image_records {
	int records, extras;
	pthread_mutex_t mutex; /* of the three below */
	uint32_t first, count; /* nodes whose records are not in the file yet */
	struct image_record later[LATER];
	struct image_record *loaded; /* of the first `n_loaded` nodes; NULL: it is in the file alone */
	uint32_t n_loaded;
	unsigned char *loaded_extras; /* all of the second file, or NULL */
	uint64_t flushed; /* bytes of the extras that are in the file */
	size_t used;
	unsigned char buffer[RECORDS_BUFFER];
};

struct image_records *image_records_new(const char *folder, struct image_error *err)
{
	struct image_records *records = calloc(1, sizeof(*records));

	if (!records) {
		image_fail_memory(err);
		return NULL;
	}
	pthread_mutex_init(&records->mutex, NULL);
	records->records = image_spill_file(folder);
	records->extras = image_spill_file(folder);
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
	pthread_mutex_destroy(&records->mutex);
	free(records->loaded);
	free(records->loaded_extras);
	free(records);
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

/* With the mutex. */
static int write_later(struct image_records *records, struct image_error *err)
{
	uint32_t count = records->count;

	records->count = 0;
	return image_write_at(records->records, records->later, count * sizeof(records->later[0]),
			      (uint64_t)records->first * sizeof(records->later[0]), err);
}

int image_records_flush(struct image_records *records, struct image_error *err)
{
	{
		scoped_lock(&records->mutex);
		if (write_later(records, err))
			return -1;
	}
	if (image_write_at(records->extras, records->buffer, records->used, records->flushed, err))
		return -1;
	records->flushed += records->used;
	records->used = 0;
	return 0;
}

static int append(struct image_records *records, const void *data, size_t length, struct image_error *err)
{
	if (length > RECORDS_BUFFER - records->used && image_records_flush(records, err))
		return -1;
	if (length > RECORDS_BUFFER) {
		if (image_write_at(records->extras, data, length, records->flushed, err))
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

int image_records_put_next(struct image_records *records, uint32_t node, const struct image_record *record,
			   struct image_error *err)
{
	scoped_lock(&records->mutex);

	if (records->count && (records->count == LATER || node != records->first + records->count) &&
	    write_later(records, err))
		return -1;
	if (!records->count)
		records->first = node;
	records->later[records->count++] = *record;
	return 0;
}

int image_records_put(struct image_records *records, uint32_t node, const struct image_record *record,
		      struct image_error *err)
{
	{
		scoped_lock(&records->mutex);
		if (node - records->first < records->count) {
			records->later[node - records->first] = *record;
			return 0;
		}
	}
	return image_write_at(records->records, record, sizeof(*record), (uint64_t)node * sizeof(*record), err);
}

int image_records_put_run(struct image_records *records, uint32_t node, const struct image_record *run, size_t count,
			  struct image_error *err)
{
	size_t start = 0;

	for (size_t i = 0; i <= count; i++) {
		bool kept = false;

		if (i < count) {
			scoped_lock(&records->mutex);
			kept = node + (uint32_t)i - records->first < records->count;
			if (kept)
				records->later[node + (uint32_t)i - records->first] = run[i];
		}
		if (!kept && i < count)
			continue;
		if (i > start && image_write_at(records->records, run + start, (i - start) * sizeof(*run),
						(node + (uint64_t)start) * sizeof(*run), err))
			return -1;
		start = i + 1;
	}
	return 0;
}

int image_records_load(struct image_records *records, uint32_t count, struct image_error *err)
{
	scoped_free struct image_record *loaded = NULL;
	scoped_free unsigned char *extras = NULL;

	if (image_records_flush(records, err))
		return -1;
	if (records->loaded || (uint64_t)count * sizeof(*loaded) > LOADED_MOST || records->flushed > LOADED_MOST)
		return 0;
	loaded = calloc(count + 1, sizeof(*loaded));
	extras = malloc(records->flushed + 1);
	if (!loaded || !extras)
		return image_fail_memory(err);
	if (read_at(records->records, loaded, count * sizeof(*loaded), 0, err) ||
	    read_at(records->extras, extras, records->flushed, 0, err))
		return -1;
	records->loaded = loaded;
	records->loaded_extras = extras;
	records->n_loaded = count;
	loaded = NULL;
	extras = NULL;
	return 0;
}

int image_records_get(struct image_records *records, uint32_t node, struct image_record *record,
		      struct image_error *err)
{
	return image_records_get_many(records, node, 1, record, err);
}

int image_records_get_many(struct image_records *records, uint32_t node, uint32_t count, struct image_record *all,
			   struct image_error *err)
{
	if (records->loaded && node + count <= records->n_loaded) {
		memcpy(all, records->loaded + node, count * sizeof(*all));
		return 0;
	}
	{
		scoped_lock(&records->mutex);
		if (node < records->first + records->count && records->first < node + count &&
		    write_later(records, err))
			return -1;
	}
	return read_at(records->records, all, count * sizeof(*all), (uint64_t)node * sizeof(*all), err);
}

int image_records_extra(struct image_records *records, const struct image_record *record, unsigned char **buffer,
			size_t *capacity, struct image_error *err)
{
	size_t length = (size_t)record->target_length + record->xattrs_length;

	if (length + 1 > *capacity) {
		unsigned char *larger = realloc(*buffer, length + 1);

		if (!larger)
			return image_fail_memory(err);
		*buffer = larger;
		*capacity = length + 1;
	}
	if (records->loaded_extras && length && record->extra + length <= records->flushed) {
		memcpy(*buffer, records->loaded_extras + record->extra, length);
		return 0;
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
