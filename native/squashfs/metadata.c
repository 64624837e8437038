/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a metadata table of a squashfs image, such as that of inodes, in compressed pieces of 8 KiB. Files of this
 * folder call it. */
#define _GNU_SOURCE
#include "metadata.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "native/layers/write_at.h"

/* Bytes that are written together, and those that a table has before it gets a file. */
#define TOGETHER ((size_t)256 << 10)
#define LONG ((size_t)4 << 20)

void squashfs_metadata_free(struct squashfs_metadata *metadata)
{
	if (metadata->nameless)
		close(metadata->fd);
	metadata->nameless = metadata->in_file = false;
	free(metadata->data);
	free(metadata->starts);
	metadata->data = NULL;
	metadata->starts = NULL;
}

static int write_pieces(struct squashfs_metadata *metadata, struct image_error *err)
{
	if (image_write_at(metadata->fd, metadata->data, metadata->length - metadata->written,
			   metadata->offset + metadata->written, err))
		return -1;
	metadata->written = metadata->length;
	return 0;
}

static int write_some(struct squashfs_metadata *metadata, struct image_error *err)
{
	uint64_t waiting = metadata->length - metadata->written;

	if (!metadata->in_file && metadata->spill && waiting >= LONG) {
		metadata->fd = image_spill_another(metadata->spill);
		if (metadata->fd < 0)
			return image_fail_call(err, "", "open", errno);
		metadata->in_file = metadata->nameless = true;
	}
	return metadata->in_file && waiting >= TOGETHER ? write_pieces(metadata, err) : 0;
}

/* Room for one more piece, as long as the compressor may want it. */
static int grow(struct squashfs_metadata *metadata, struct image_error *err)
{
	size_t most = 2 + 2 * SQUASHFS_METADATA;

	if (write_some(metadata, err))
		return -1;
	if (metadata->capacity - (metadata->length - metadata->written) < most) {
		size_t capacity = 2 * metadata->capacity + 8 * most;
		unsigned char *data = realloc(metadata->data, capacity);

		if (!data)
			return image_fail_memory(err);
		metadata->data = data;
		metadata->capacity = capacity;
	}
	if (metadata->n_starts == metadata->starts_capacity) {
		size_t capacity = metadata->starts_capacity ? 2 * metadata->starts_capacity : 16;
		uint64_t *starts = reallocarray(metadata->starts, capacity, sizeof(*starts));

		if (!starts)
			return image_fail_memory(err);
		metadata->starts = starts;
		metadata->starts_capacity = capacity;
	}
	return 0;
}

static int end_piece(struct squashfs_metadata *metadata, struct image_error *err)
{
	unsigned char *to;
	size_t length = 0;

	if (grow(metadata, err))
		return -1;
	to = metadata->data + (metadata->length - metadata->written);
	metadata->starts[metadata->n_starts++] = metadata->length;
	if (metadata->compressor)
		length = squashfs_compressor_run(metadata->compressor, metadata->piece, metadata->used, to + 2);
	if (length) {
		put16(to, (uint16_t)length);
	} else {
		length = metadata->used;
		put16(to, (uint16_t)(length | SQUASHFS_METADATA_PLAIN));
		memcpy(to + 2, metadata->piece, length);
	}
	metadata->length += 2 + length;
	metadata->used = 0;
	return 0;
}

int squashfs_metadata_add(struct squashfs_metadata *metadata, const void *data, size_t length,
			  struct image_error *err)
{
	const unsigned char *from = data;

	while (length) {
		size_t part = SQUASHFS_METADATA - metadata->used;

		part = part < length ? part : length;
		memcpy(metadata->piece + metadata->used, from, part);
		metadata->used += part;
		from += part;
		length -= part;
		if (metadata->used == SQUASHFS_METADATA && end_piece(metadata, err))
			return -1;
	}
	return 0;
}

int squashfs_metadata_end(struct squashfs_metadata *metadata, struct image_error *err)
{
	if (metadata->used && end_piece(metadata, err))
		return -1;
	return metadata->in_file ? write_pieces(metadata, err) : 0;
}

int squashfs_metadata_write(struct squashfs_metadata *metadata, int fd, uint64_t offset, struct image_error *err)
{
	uint64_t done = 0;

	if (squashfs_metadata_end(metadata, err))
		return -1;
	/* All of it is in the file: `data`, which is as long as what is written together, is free. */
	while (done < metadata->written) {
		uint64_t left = metadata->written - done;
		ssize_t got = pread(metadata->fd, metadata->data, left < TOGETHER ? left : TOGETHER, (off_t)done);

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return image_fail_call(err, "", "pread", got ? errno : EIO);
		if (image_write_at(fd, metadata->data, (size_t)got, offset + done, err))
			return -1;
		done += (uint64_t)got;
	}
	return image_write_at(fd, metadata->data, metadata->length - done, offset + done, err);
}
