/* SPDX-License-Identifier: Apache-2.0 */
/* Writes and reads layer listings: files that say what is in a layer, without its content. layers.c calls it. */
#define _GNU_SOURCE
#include "listing.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "hash.h"
#include "mapped.h"
#include "scoped.h"
#include "write_at.h"

#define MAGIC "cellblock-layer-listing 1\n"
#define MAGIC_LENGTH (sizeof(MAGIC) - 1)
#define LISTING_BUFFER ((size_t)1 << 20)

enum content { HAS_NONE, HAS_DIGEST, IS_ABSENT };

/* Then the path, the target and the attributes, without anything between them. */
struct listed {
	char kind;
	uint8_t content; /* enum content */
	uint16_t path_length, target_length;
	uint32_t xattrs_length;
	uint32_t mode, uid, gid, major, minor;
	uint32_t node; /* 0 in a finished listing */
	uint64_t size;
	int64_t mtime_ns;
	unsigned char digest[32];
} __attribute__((packed));

static int hash_mapped(const unsigned char *data, uint64_t length, unsigned char digest[32])
{
	struct image_hash hash;
	uint64_t dropped = 0;

	if (image_hash_begin(&hash))
		return -1;
	for (uint64_t at = 0; at < length; image_mapped_drop(data, &dropped, at)) {
		uint64_t part = length - at < IMAGE_MAPPED_STEP ? length - at : IMAGE_MAPPED_STEP;

		image_hash_add(&hash, data + at, (size_t)part);
		at += part;
	}
	image_hash_end(&hash, digest);
	return 0;
}

static size_t tail_of(const struct listed *listed)
{
	return (size_t)listed->path_length + listed->target_length + listed->xattrs_length;
}

struct image_listing {
	int fd;
	bool given_up;
	uint64_t written;
	size_t used;
	unsigned char buffer[LISTING_BUFFER];
};

static int flush(struct image_listing *listing, struct image_error *err)
{
	if (image_write_at(listing->fd, listing->buffer, listing->used, listing->written, err))
		return -1;
	listing->written += listing->used;
	listing->used = 0;
	return 0;
}

static int append_bytes(struct image_listing *listing, const void *data, size_t length, struct image_error *err)
{
	while (length) {
		size_t part = LISTING_BUFFER - listing->used;

		part = part < length ? part : length;
		memcpy(listing->buffer + listing->used, data, part);
		listing->used += part;
		data = (const char *)data + part;
		length -= part;
		if (listing->used == LISTING_BUFFER && flush(listing, err))
			return -1;
	}
	return 0;
}

struct image_listing *image_listing_new(int fd, struct image_error *err)
{
	struct image_listing *listing = calloc(1, sizeof(*listing));

	if (!listing) {
		image_fail_memory(err);
		return NULL;
	}
	listing->fd = fd;
	memcpy(listing->buffer, MAGIC, MAGIC_LENGTH);
	listing->used = MAGIC_LENGTH;
	return listing;
}

void image_listing_free(struct image_listing *listing)
{
	free(listing);
}

int image_listing_add(struct image_listing *listing, const struct image_entry *entry, uint32_t node,
		      struct image_error *err)
{
	struct listed listed = {
		.kind = entry->kind, .content = HAS_NONE,
		.path_length = (uint16_t)entry->path_length, .target_length = (uint16_t)entry->target_length,
		.xattrs_length = (uint32_t)entry->xattrs_length,
		.mode = entry->mode, .uid = entry->uid, .gid = entry->gid, .major = entry->major, .minor = entry->minor,
		.node = node, .size = entry->size, .mtime_ns = entry->mtime_ns,
	};

	if (listing->given_up)
		return 0;
	if (entry->kind == 'f' && entry->size)
		listed.content = node ? HAS_DIGEST : IS_ABSENT;
	if (append_bytes(listing, &listed, sizeof(listed), err) ||
	    append_bytes(listing, entry->path, entry->path_length, err) ||
	    (entry->target_length && append_bytes(listing, entry->target, entry->target_length, err)))
		return -1;
	return entry->xattrs_length ? append_bytes(listing, entry->xattrs, entry->xattrs_length, err) : 0;
}

void image_listing_give_up(struct image_listing *listing)
{
	listing->given_up = true;
}

/* Puts the digests in, from the beginning on, and hashes what then is there. */
static int fill(struct image_listing *listing, struct image_records *records, unsigned char *data,
		struct image_error *err)
{
	uint64_t dropped = 0;

	for (uint64_t at = MAGIC_LENGTH; at < listing->written; image_mapped_drop(data, &dropped, at)) {
		struct listed listed;
		struct image_record record;

		memcpy(&listed, data + at, sizeof(listed));
		if (listed.content == HAS_DIGEST) {
			if (image_records_get(records, listed.node, &record, err))
				return -1;
			memcpy(listed.digest, record.digest, sizeof(listed.digest));
		}
		listed.node = 0;
		memcpy(data + at, &listed, sizeof(listed));
		at += sizeof(listed) + tail_of(&listed);
	}
	return 0;
}

int image_listing_finish(struct image_listing *listing, struct image_records *records, struct image_error *err)
{
	unsigned char digest[32], *data;
	int result;

	if (listing->given_up)
		return ftruncate(listing->fd, 0) ? image_fail_call(err, "", "ftruncate", errno) : 0;
	if (flush(listing, err))
		return -1;
	data = mmap(NULL, listing->written, PROT_READ | PROT_WRITE, MAP_SHARED, listing->fd, 0);
	if (data == MAP_FAILED)
		return image_fail_call(err, "", "mmap", errno);
	result = fill(listing, records, data, err);
	if (!result && hash_mapped(data, listing->written, digest))
		result = image_fail_memory(err);
	munmap(data, listing->written);
	return result ? -1 : image_write_at(listing->fd, digest, sizeof(digest), listing->written, err);
}

struct image_listing_reader {
	const unsigned char *data;
	size_t length, at; /* without the digest at the end */
	uint64_t dropped;
	struct image_entry entry;
	char path[IMAGE_PATH_LONGEST + 1], target[IMAGE_PATH_LONGEST + 1];
};

static int damaged(struct image_error *err)
{
	return image_fail(err, IMAGE_FAULT_ABSENT, "", "a listing is damaged");
}

static bool is_whole(const struct image_listing_reader *reader)
{
	unsigned char digest[32];

	if (reader->length < MAGIC_LENGTH || memcmp(reader->data, MAGIC, MAGIC_LENGTH) ||
	    hash_mapped(reader->data, reader->length, digest))
		return false;
	return !memcmp(digest, reader->data + reader->length, sizeof(digest));
}

struct image_listing_reader *image_listing_open(int fd, struct image_error *err)
{
	struct image_listing_reader *reader = calloc(1, sizeof(*reader));
	struct stat status;
	void *data = MAP_FAILED;

	if (!reader) {
		image_fail_memory(err);
		return NULL;
	}
	if (!fstat(fd, &status) && status.st_size > 32)
		data = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (data == MAP_FAILED) {
		damaged(err);
		free(reader);
		return NULL;
	}
	reader->data = data;
	reader->length = (size_t)status.st_size - 32;
	reader->at = MAGIC_LENGTH;
	if (is_whole(reader))
		return reader;
	damaged(err);
	image_listing_close(reader);
	return NULL;
}

void image_listing_close(struct image_listing_reader *reader)
{
	if (!reader)
		return;
	munmap((void *)reader->data, reader->length + 32);
	free(reader);
}

int image_listing_next(struct image_listing_reader *reader, const struct image_entry **entry,
		       struct image_error *err)
{
	const unsigned char *head = reader->data + reader->at, *tail = head + sizeof(struct listed);
	size_t left = reader->length - reader->at;
	struct listed listed;

	if (!left)
		return 0;
	if (left < sizeof(listed))
		return damaged(err);
	memcpy(&listed, head, sizeof(listed));
	if (left - sizeof(listed) < tail_of(&listed) || listed.path_length > IMAGE_PATH_LONGEST ||
	    listed.target_length > IMAGE_PATH_LONGEST)
		return damaged(err);
	memcpy(reader->path, tail, listed.path_length);
	reader->path[listed.path_length] = 0;
	memcpy(reader->target, tail + listed.path_length, listed.target_length);
	reader->target[listed.target_length] = 0;
	reader->entry = (struct image_entry){
		.kind = listed.kind, .path = reader->path, .path_length = listed.path_length,
		.target = reader->target, .target_length = listed.target_length,
		.mode = listed.mode, .uid = listed.uid, .gid = listed.gid, .major = listed.major, .minor = listed.minor,
		.size = listed.size, .mtime_ns = listed.mtime_ns,
		.xattrs = tail + listed.path_length + listed.target_length, .xattrs_length = listed.xattrs_length,
		.digest = listed.content == HAS_DIGEST ? head + offsetof(struct listed, digest) : NULL,
		.absent = listed.content == IS_ABSENT,
	};
	image_mapped_drop(reader->data, &reader->dropped, reader->at);
	reader->at += sizeof(listed) + tail_of(&listed);
	*entry = &reader->entry;
	return 1;
}
