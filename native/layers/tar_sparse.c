/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the maps of sparse files in a tar archive, which say where their data lies. tar.c calls it. */
#define _GNU_SOURCE
#include "tar_reader.h"

static int check_extents(struct image_tar *tar, struct image_error *err)
{
	uint64_t end = 0, stored = 0;
	size_t kept = 0;
	struct image_extent *extents = tar->attributes.extents;

	for (size_t i = 0; i < tar->attributes.n_extents; i++) {
		uint64_t offset = extents[i].offset, length = extents[i].length;

		if (offset < end || offset > INT64_MAX || length > INT64_MAX - offset ||
		    offset + length > tar->entry.size)
			return tar_malformed(tar, err, "the map of a sparse file does not fit its size");
		end = offset + length;
		stored += length;
		if (length)
			extents[kept++] = extents[i];
	}
	if (stored != tar->left)
		return tar_malformed(tar, err, "the map of a sparse file does not fit what is stored of it");
	tar->entry.sparse = true;
	tar->entry.extents = extents;
	tar->entry.n_extents = kept;
	return 0;
}

/* GNU's own form: the map begins in the header. */
int tar_gnu_map(struct image_tar *tar, const struct tar_header *header, struct image_error *err)
{
	bool more = header->gnu.extended;
	int64_t offset, length, real;
	const struct tar_map *map;

	if (tar_number(header->gnu.real_size, sizeof(header->gnu.real_size), &real) || real < 0)
		return tar_malformed(tar, err, "a sparse file's size is no number");
	tar->entry.size = (uint64_t)real;
	for (size_t i = 0; i < 4 && header->gnu.sparse[i].length[0]; i++)
		if (tar_number(header->gnu.sparse[i].offset, 12, &offset) || offset < 0 ||
		    tar_number(header->gnu.sparse[i].length, 12, &length) || length < 0 ||
		    tar_add_extent(&tar->attributes, (uint64_t)offset, (uint64_t)length))
			return tar_malformed(tar, err, "a sparse file's map is none");
	for (; more; more = map->extended) {
		const void *record;
		int got = tar_next_record(tar, &record, err);

		if (got <= 0)
			return got ? got : tar_cut_off(err);
		map = record;
		for (size_t i = 0; i < 21 && map->sparse[i].length[0]; i++)
			if (tar_number(map->sparse[i].offset, 12, &offset) || offset < 0 ||
			    tar_number(map->sparse[i].length, 12, &length) || length < 0 ||
			    tar_add_extent(&tar->attributes, (uint64_t)offset, (uint64_t)length))
				return tar_malformed(tar, err, "a sparse file's map is none");
	}
	return check_extents(tar, err);
}

/* Form 1.0: the map is the beginning of the content, one decimal number a line, padded to a record. */
static int pax_1_0_number(struct image_tar *tar, const char **record, size_t *at, uint64_t *value,
			  struct image_error *err)
{
	char digits[20];

	for (size_t n = 0; n < sizeof(digits); n++) {
		if (!*record || *at == TAR_RECORD) {
			const void *next;
			int got = tar->left < TAR_RECORD ? 0 : tar_next_record(tar, &next, err);

			if (got < 0)
				return -1;
			if (!got)
				return tar_malformed(tar, err, "a sparse file's map is cut off");
			*record = next;
			*at = 0;
			tar->left -= TAR_RECORD;
		}
		digits[n] = (*record)[(*at)++];
		if (digits[n] == '\n')
			return tar_decimal(digits, n, value) ? tar_malformed(tar, err, "a sparse file's map is none") : 0;
	}
	return tar_malformed(tar, err, "a sparse file's map is none");
}

static int pax_1_0_map(struct image_tar *tar, struct image_error *err)
{
	const char *record = NULL;
	size_t at = 0;
	uint64_t count, offset, length;

	/* A block may be given back when the next record comes from another: each number is copied first. */
	if (pax_1_0_number(tar, &record, &at, &count, err))
		return -1;
	if (count > TAR_EXTENTS_MOST)
		return tar_malformed(tar, err, "a sparse file's map is too long");
	tar->attributes.n_extents = 0;
	for (; count; count--)
		if (pax_1_0_number(tar, &record, &at, &offset, err) ||
		    pax_1_0_number(tar, &record, &at, &length, err) ||
		    (tar_add_extent(&tar->attributes, offset, length) && image_fail_memory(err)))
			return -1;
	return 0;
}

int tar_pax_map(struct image_tar *tar, struct image_error *err)
{
	const struct tar_attributes *from = &tar->attributes;

	if (from->set & TAR_SPARSE_SIZE)
		tar->entry.size = from->sparse_size;
	if (from->sparse_major == 1 && from->sparse_minor == 0) {
		if (pax_1_0_map(tar, err))
			return -1;
	} else if (from->sparse_major != 0) {
		return tar_malformed(tar, err, "a sparse file is stored in a form that is not known");
	} else if ((from->set & TAR_SPARSE_COUNT) && (from->sparse_count != from->n_extents || from->has_offset)) {
		return tar_malformed(tar, err, "a sparse file's map has not the length that it says");
	}
	return check_extents(tar, err);
}
