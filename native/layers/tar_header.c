/* SPDX-License-Identifier: Apache-2.0 */
/* Parses one header block of a tar. tar.c, tar_sparse.c and enroot/importing call it. */
#define _GNU_SOURCE
#include "tar_header.h"

#include <string.h>

int tar_number(const char *field, size_t size, int64_t *value)
{
	const unsigned char *bytes = (const unsigned char *)field;
	size_t i = 0;

	*value = 0;
	if (bytes[0] & 0x80) {
		/* Big-endian two's complement over all bits but the first. */
		uint64_t number = bytes[0] & 0x40 ? UINT64_MAX : 0;

		number = number << 6 | (bytes[0] & 0x3f);
		for (i = 1; i < size; i++) {
			uint64_t top = number >> 55;

			if (top != 0 && top != 0x1ff)
				return -1;
			number = number << 8 | bytes[i];
		}
		*value = (int64_t)number;
		return 0;
	}
	while (i < size && field[i] == ' ')
		i++;
	for (; i < size && field[i] >= '0' && field[i] <= '7'; i++) {
		if (*value >> 60)
			return -1;
		*value = *value * 8 + (field[i] - '0');
	}
	/* An empty field is 0: star and others leave device numbers so. */
	return i == size || field[i] == ' ' || field[i] == 0 ? 0 : -1;
}

bool tar_checksum_is_right(const struct tar_header *header)
{
	const unsigned char *bytes = (const unsigned char *)header;
	size_t from = offsetof(struct tar_header, checksum), to = from + sizeof(header->checksum);
	int64_t expected, unsigned_sum = 0, signed_sum = 0;

	for (size_t i = 0; i < sizeof(*header); i++) {
		unsigned char byte = i >= from && i < to ? ' ' : bytes[i];

		unsigned_sum += byte;
		signed_sum += (signed char)byte;
	}
	return !tar_number(header->checksum, sizeof(header->checksum), &expected) &&
	       (expected == unsigned_sum || expected == signed_sum);
}

int tar_clean(const char *name, size_t length, char *to, size_t *to_length, struct image_error *err)
{
	size_t used = 0;

	if (memchr(name, 0, length))
		return image_fail(err, IMAGE_FAULT_SOURCE, "", "a name in the archive has a zero byte in it");
	for (const char *end = name + length; name < end;) {
		const char *slash = memchr(name, '/', (size_t)(end - name));
		size_t part = (size_t)((slash ? slash : end) - name);

		if (part == 2 && !memcmp(name, "..", 2))
			return image_fail(err, IMAGE_FAULT_SOURCE, "", "the name %.*s leaves the archive's root",
					  (int)(end - name < 200 ? end - name : 200), name);
		if (part && !(part == 1 && *name == '.')) {
			if (part > IMAGE_NAME_LONGEST || used + part + 1 > IMAGE_PATH_LONGEST)
				return image_fail(err, IMAGE_FAULT_SOURCE, "",
						  "a name in the archive is longer than Linux has them");
			if (used)
				to[used++] = '/';
			memcpy(to + used, name, part);
			used += part;
		}
		name += part + (slash != NULL);
	}
	to[used] = 0;
	*to_length = used;
	return 0;
}
