/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the entries of a tar: ustar, pax and GNU. layers.c calls it. */
#define _GNU_SOURCE
#include "tar.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tar_reader.h"

/* As Go's archive/tar, which the container tools are written with; a larger header is an attack. */
#define BODY_LONGEST ((uint64_t)1 << 20)
/* A header for all members is read again for each; it says little, if there is one: the commit, by git archive. */
#define GLOBAL_LONGEST ((uint64_t)64 << 10)

struct image_tar *image_tar_new(const struct image_input *input, struct image_error *err)
{
	struct image_tar *tar = calloc(1, sizeof(*tar));

	if (!tar) {
		image_fail_memory(err);
		return NULL;
	}
	tar->input = *input;
	return tar;
}

void image_tar_free(struct image_tar *tar)
{
	if (!tar)
		return;
	image_block_release(tar->block);
	tar_attributes_free(&tar->attributes);
	free(tar->global.data);
	free(tar->local.data);
	free(tar->long_name.data);
	free(tar->long_link.data);
	free(tar);
}

static int skip(struct image_tar *tar, uint64_t length, struct image_error *err)
{
	while (length) {
		int got = tar_fill(tar, err);
		uint64_t part;

		if (got <= 0)
			return got ? got : tar_cut_off(err);
		part = tar->block->length - tar->at;
		part = part < length ? part : length;
		tar->at += (size_t)part;
		length -= part;
	}
	return 0;
}

/* Appends a member's content to `text`, with a zero byte that does not count. */
static int read_body(struct image_tar *tar, uint64_t size, struct text *text, struct image_error *err)
{
	uint64_t left = size, longest = text == &tar->global ? GLOBAL_LONGEST : BODY_LONGEST;

	if (size > longest || text->length + size > longest)
		return tar_malformed(tar, err, text == &tar->global ? "a header for all members is longer than 64 KiB"
								    : "a header is longer than 1 MiB");
	if (text->length + size + 1 > text->capacity) {
		char *data = realloc(text->data, text->length + (size_t)size + 1);

		if (!data)
			return image_fail_memory(err);
		text->data = data;
		text->capacity = text->length + (size_t)size + 1;
	}
	while (left) {
		int got = tar_fill(tar, err);
		size_t part;

		if (got <= 0)
			return got ? got : tar_cut_off(err);
		part = tar->block->length - tar->at;
		part = part < left ? part : (size_t)left;
		memcpy(text->data + text->length, tar->block->data + tar->at, part);
		text->length += part;
		tar->at += part;
		left -= part;
	}
	text->data[text->length] = 0;
	return skip(tar, -size & (TAR_RECORD - 1), err);
}

static int set_name(struct image_tar *tar, const struct tar_header *header, struct image_error *err)
{
	const struct tar_attributes *from = &tar->attributes;
	struct image_entry *entry = &tar->entry;
	char joined[sizeof(header->prefix) + 1 + sizeof(header->name) + 1];
	const char *name = joined;
	size_t length = (size_t)snprintf(joined, sizeof(joined), "%.*s", (int)sizeof(header->name), header->name);

	if (!memcmp(header->magic, "ustar\0" "00", 8) && header->prefix[0])
		length = (size_t)snprintf(joined, sizeof(joined), "%.*s/%.*s", (int)sizeof(header->prefix),
					  header->prefix, (int)sizeof(header->name), header->name);
	if (tar->has_name) {
		name = tar->long_name.data;
		length = strlen(name);
	}
	if (from->set & TAR_PATH) {
		name = from->path;
		length = from->path_length;
	}
	if (from->set & TAR_SPARSE_NAME) {
		name = from->sparse_name;
		length = from->sparse_name_length;
	}
	/* Before pax, the one sign of a directory. */
	if (entry->kind == 'f' && length && name[length - 1] == '/')
		entry->kind = 'd';
	entry->path = tar->path;
	return tar_clean(name, length, tar->path, &entry->path_length, err);
}

static int set_target(struct image_tar *tar, const struct tar_header *header, struct image_error *err)
{
	const struct tar_attributes *from = &tar->attributes;
	struct image_entry *entry = &tar->entry;
	const char *name = header->link;
	size_t length = strnlen(header->link, sizeof(header->link));

	if (tar->has_link) {
		name = tar->long_link.data;
		length = strlen(name);
	}
	if (from->set & TAR_LINK) {
		name = from->link;
		length = from->link_length;
	}
	entry->target = tar->target;
	if (entry->kind == 'h')
		return tar_clean(name, length, tar->target, &entry->target_length, err);
	if (!length || length > IMAGE_PATH_LONGEST || memchr(name, 0, length))
		return tar_malformed(tar, err, "a symbolic link's text is empty or longer than Linux has them");
	memcpy(tar->target, name, length);
	tar->target[length] = 0;
	entry->target_length = length;
	return 0;
}

static int set_numbers(struct image_tar *tar, const struct tar_header *header, struct image_error *err)
{
	const struct tar_attributes *from = &tar->attributes;
	struct image_entry *entry = &tar->entry;
	int64_t mode, uid, gid, mtime, major = 0, minor = 0;
	bool device = entry->kind == 'c' || entry->kind == 'b';

	if (tar_number(header->mode, sizeof(header->mode), &mode) ||
	    tar_number(header->uid, sizeof(header->uid), &uid) ||
	    tar_number(header->gid, sizeof(header->gid), &gid) ||
	    tar_number(header->mtime, sizeof(header->mtime), &mtime) ||
	    (device && (tar_number(header->major, sizeof(header->major), &major) ||
			tar_number(header->minor, sizeof(header->minor), &minor))))
		return tar_malformed(tar, err, "a field of the header is no number");
	if (from->set & TAR_UID)
		uid = (int64_t)from->uid;
	if (from->set & TAR_GID)
		gid = (int64_t)from->gid;
	/* 2^32 - 1 is chown(2)'s "leave it". */
	if (uid < 0 || uid >= UINT32_MAX || gid < 0 || gid >= UINT32_MAX)
		return tar_malformed(tar, err, "an owner is beyond 32 bits");
	if (major < 0 || major > 0xfff || minor < 0 || minor > 0xfffff)
		return tar_malformed(tar, err, "a device's number is beyond what Linux has");
	if (mtime > INT64_MAX / 1000000000 - 1 || mtime < INT64_MIN / 1000000000 + 1)
		return tar_malformed(tar, err, "a time is too far off");
	entry->mode = entry->kind == 'l' ? 0777 : (uint32_t)mode & 07777;
	entry->uid = (uint32_t)uid;
	entry->gid = (uint32_t)gid;
	entry->mtime_ns = from->set & TAR_MTIME ? from->mtime_ns : mtime * 1000000000;
	entry->major = (uint32_t)major;
	entry->minor = (uint32_t)minor;
	entry->xattrs = from->xattrs.data;
	entry->xattrs_length = from->xattrs.length;
	return 0;
}

static char kind_of(char type)
{
	switch (type) {
	case 0: case '0': case '7': case 'S':
		return 'f';
	case '1':
		return 'h';
	case '2':
		return 'l';
	case '3':
		return 'c';
	case '4':
		return 'b';
	case '5':
		return 'd';
	case '6':
		return 'p';
	default:
		return 0;
	}
}

static int member(struct image_tar *tar, const struct tar_header *header, uint64_t size, struct image_error *err)
{
	struct image_entry *entry = &tar->entry;
	const struct tar_attributes *from = &tar->attributes;
	bool gnu_sparse = header->type == 'S';
	struct tar_header copy = *header; /* the map may lie in the next block */

	tar_attributes_clear(&tar->attributes);
	*entry = (struct image_entry){ .kind = kind_of(header->type), .path = "", .target = "" };
	if (tar_pax(tar->global.data, tar->global.length, &tar->attributes, err) ||
	    tar_pax(tar->local.data, tar->local.length, &tar->attributes, err) || set_name(tar, &copy, err)) {
		if (!err->path[0])
			snprintf(err->path, sizeof(err->path), "%.*s", (int)sizeof(copy.name), copy.name);
		return -1;
	}
	if (!entry->kind)
		return image_fail(err, IMAGE_FAULT_SOURCE, entry->path, "is of a type that is not known ('%c')",
				  copy.type > ' ' && copy.type < 0x7f ? copy.type : '?');
	if (set_numbers(tar, &copy, err) || ((entry->kind == 'l' || entry->kind == 'h') && set_target(tar, &copy, err)))
		return -1;
	if (from->set & TAR_SIZE)
		size = from->size;
	if (entry->kind == 'f') {
		if (size > INT64_MAX - TAR_RECORD)
			return tar_malformed(tar, err, "a file's size is beyond what Linux has");
		entry->size = tar->left = size;
		tar->padding = -size & (TAR_RECORD - 1);
		if (gnu_sparse ? tar_gnu_map(tar, &copy, err)
			       : (from->set & (TAR_SPARSE_NAME | TAR_SPARSE_SIZE | TAR_SPARSE_MAP)) && tar_pax_map(tar, err))
			return -1;
		entry->stored = tar->left;
	} else if (entry->kind == 'l') {
		entry->size = entry->target_length;
	}
	return 1;
}

static bool is_zero(const void *record)
{
	static const unsigned char zeros[TAR_RECORD];

	return !memcmp(record, zeros, TAR_RECORD);
}

/* Reads what is left of the input, so that its digest is known. */
static int drain(struct image_tar *tar, struct image_error *err)
{
	int got;

	tar->ended = true;
	while ((got = tar_fill(tar, err)) > 0)
		tar->at = tar->block->length;
	return got;
}

int image_tar_next(struct image_tar *tar, const struct image_entry **entry, struct image_error *err)
{
	const struct tar_header *header;
	const void *record = NULL;
	int64_t size;
	int got;

	if (tar->ended)
		return 0;
	if (skip(tar, tar->left + tar->padding, err))
		return -1;
	tar->left = tar->padding = tar->extent_done = 0;
	tar->extent = 0;
	tar->has_name = tar->has_link = false;
	tar->local.length = 0;
	tar->entry.path = "";
	for (;;) {
		got = tar_next_record(tar, &record, err);
		if (got <= 0)
			return got ? got : tar_cut_off(err);
		if (is_zero(record))
			return drain(tar, err);
		header = record;
		if (!tar_checksum_is_right(header))
			return tar_malformed(tar, err, "a header's checksum is wrong");
		if (tar_number(header->size, sizeof(header->size), &size) || size < 0)
			return tar_malformed(tar, err, "a member's size is no number");
		struct text *to = header->type == 'g' ? &tar->global : header->type == 'x' ? &tar->local :
				  header->type == 'L' ? &tar->long_name : header->type == 'K' ? &tar->long_link : NULL;

		if (!to && header->type == 'V') {
			if (skip(tar, ((uint64_t)size + TAR_RECORD - 1) & ~(uint64_t)(TAR_RECORD - 1), err))
				return -1;
			continue;
		}
		if (!to)
			break;
		tar->has_name |= header->type == 'L';
		tar->has_link |= header->type == 'K';
		if (header->type == 'L' || header->type == 'K')
			to->length = 0;
		if (read_body(tar, (uint64_t)size, to, err))
			return -1;
	}
	*entry = &tar->entry;
	return member(tar, header, (uint64_t)size, err);
}

int image_tar_data(struct image_tar *tar, struct image_slice *slice, struct image_error *err)
{
	const struct image_entry *entry = &tar->entry;
	uint64_t part, limit = tar->left;
	int got;

	if (!tar->left)
		return 0;
	got = tar_fill(tar, err);
	if (got <= 0)
		return got ? got : tar_cut_off(err);
	slice->offset = entry->stored - tar->left;
	if (entry->sparse) {
		const struct image_extent *extent = &entry->extents[tar->extent];

		slice->offset = extent->offset + tar->extent_done;
		limit = extent->length - tar->extent_done;
	}
	part = tar->block->length - tar->at;
	part = part < limit ? part : limit;
	slice->data = tar->block->data + tar->at;
	slice->length = (size_t)part;
	slice->block = tar->block;
	tar->at += (size_t)part;
	tar->left -= part;
	if (entry->sparse) {
		tar->extent_done += part;
		if (tar->extent_done == entry->extents[tar->extent].length) {
			tar->extent++;
			tar->extent_done = 0;
		}
	}
	return 1;
}
