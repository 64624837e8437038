/* SPDX-License-Identifier: Apache-2.0 */
/* Makes tar archives in memory, and a sink that notes what it is given, for tests and fuzz targets. */
#ifndef IMAGE_MEMORY_TAR_H
#define IMAGE_MEMORY_TAR_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "native/layers/merge.h"
#include "native/layers/tar.h"
#include "native/layers/tar_header.h"

/* Gives memory in blocks, the last one shorter. `size` of a block: small in tests, so that all borders come. */
struct memory {
	struct image_pool pool;
	const unsigned char *data;
	size_t length, at;
};

static inline int memory_next(void *context, struct image_block **block, struct image_error *err)
{
	struct memory *memory = context;
	size_t part = memory->length - memory->at;

	(void)err;
	if (!part)
		return 0;
	*block = image_block_take(&memory->pool);
	part = part < memory->pool.block_size ? part : memory->pool.block_size;
	memcpy((*block)->data, memory->data + memory->at, part);
	(*block)->length = part;
	memory->at += part;
	return 1;
}

static inline void memory_open(struct memory *memory, const void *data, size_t length, size_t block_size)
{
	*memory = (struct memory){ .data = data, .length = length };
	image_pool_init(&memory->pool, 64, block_size);
}

/* No input of a fuzz target would get past them. */
static inline void memory_fix_checksums(unsigned char *data, size_t size)
{
	for (size_t at = 0; at + 512 <= size; at += 512) {
		struct tar_header *header = (struct tar_header *)(data + at);
		unsigned sum = 0;

		if (memcmp(header->magic, "ustar", 5))
			continue;
		memset(header->checksum, ' ', 8);
		for (size_t i = 0; i < 512; i++)
			sum += data[at + i];
		snprintf(header->checksum, 8, "%06o", sum);
	}
}

/* A sink that keeps a text of all calls: "f path=content\n". */
struct noted {
	struct image_tree *tree;
	FILE *stream;
	char *text;
	size_t length;
};

static inline void note_path(struct noted *noted, char kind, uint32_t node)
{
	char path[IMAGE_PATH_LONGEST + 1];

	image_tree_path(noted->tree, node, path, sizeof(path));
	fprintf(noted->stream, "%c %s", kind, path);
}

static inline int note_entry(void *sink, uint32_t node, const struct image_entry *entry, struct image_error *err)
{
	struct noted *noted = sink;

	(void)err;
	note_path(noted, entry->kind, node);
	if (entry->kind == 'l')
		fprintf(noted->stream, "->%s", entry->target);
	fputs(entry->kind == 'f' ? "=" : "\n", noted->stream);
	return 0;
}

static inline int note_slice(void *sink, const struct image_slice *slice, struct image_error *err)
{
	(void)err;
	fwrite(slice->data, 1, slice->length, ((struct noted *)sink)->stream);
	return 0;
}

static inline int note_end(void *sink, struct image_error *err)
{
	(void)err;
	fputs("\n", ((struct noted *)sink)->stream);
	return 0;
}

static inline int note_link(void *sink, uint32_t node, uint32_t primary, struct image_error *err)
{
	struct noted *noted = sink;

	(void)err;
	note_path(noted, 'h', node);
	note_path(noted, '=', primary);
	fputs("\n", noted->stream);
	return 0;
}

static inline int note_replace(void *sink, uint32_t node, uint32_t heir, struct image_error *err)
{
	struct noted *noted = sink;

	(void)err;
	note_path(noted, '-', node);
	if (heir)
		note_path(noted, '>', heir);
	fputs("\n", noted->stream);
	return 0;
}

static const struct image_sink_operations noting = {
	.folder = note_entry, .special = note_entry, .file = note_entry, .slice = note_slice, .file_end = note_end,
	.link = note_link, .replace = note_replace,
};

#endif
