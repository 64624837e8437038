#define _GNU_SOURCE
#include "metadata.h"

#include <stdlib.h>

void squashfs_metadata_free(struct squashfs_metadata *metadata)
{
	free(metadata->data);
	free(metadata->starts);
	metadata->data = NULL;
	metadata->starts = NULL;
}

/* Room for one more piece, as long as the compressor may want it. */
static int grow(struct squashfs_metadata *metadata, struct image_error *err)
{
	size_t most = 2 + 2 * SQUASHFS_METADATA;

	if (metadata->room - metadata->length < most) {
		size_t room = 2 * metadata->room + 8 * most;
		unsigned char *data = realloc(metadata->data, room);

		if (!data)
			return image_fail_memory(err);
		metadata->data = data;
		metadata->room = room;
	}
	if (metadata->n_starts == metadata->starts_room) {
		size_t room = metadata->starts_room ? 2 * metadata->starts_room : 16;
		uint64_t *starts = reallocarray(metadata->starts, room, sizeof(*starts));

		if (!starts)
			return image_fail_memory(err);
		metadata->starts = starts;
		metadata->starts_room = room;
	}
	return 0;
}

static int end_piece(struct squashfs_metadata *metadata, struct image_error *err)
{
	unsigned char *to;
	size_t length = 0;

	if (grow(metadata, err))
		return -1;
	to = metadata->data + metadata->length;
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
	return metadata->used ? end_piece(metadata, err) : 0;
}
