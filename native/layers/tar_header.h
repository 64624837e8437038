/* SPDX-License-Identifier: Apache-2.0 */
/* The header block of a tar archive's entry, and what the blocks before it change. Only the files of the tar reader
 * use it. */
#ifndef IMAGE_TAR_HEADER_H
#define IMAGE_TAR_HEADER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "entry.h"
#include "error.h"
#include "xattrs.h"

#define TAR_RECORD 512
/* More than any file that is worth a sparse map has; 16 MiB of memory. */
#define TAR_EXTENTS_MOST ((size_t)1 << 20)

struct tar_header {
	char name[100], mode[8], uid[8], gid[8], size[12], mtime[12], checksum[8], type, link[100];
	char magic[8], user[32], group[32], major[8], minor[8];
	union {
		char prefix[155];
		struct {
			char access[12], change[12], offset[12], longnames[4], unused;
			struct { char offset[12], length[12]; } sparse[4];
			char extended, real_size[12];
		} gnu;
	};
	char padding[12];
};
_Static_assert(sizeof(struct tar_header) == TAR_RECORD, "a tar's header has 512 bytes");

/* The 512 bytes that follow a header whose map of a sparse file goes on. */
struct tar_map {
	struct { char offset[12], length[12]; } sparse[21];
	char extended, padding[7];
};
_Static_assert(sizeof(struct tar_map) == TAR_RECORD, "a tar's map has 512 bytes");

enum tar_set {
	TAR_PATH = 1, TAR_LINK = 2, TAR_SIZE = 4, TAR_UID = 8, TAR_GID = 16, TAR_MTIME = 32,
	TAR_SPARSE_NAME = 64, TAR_SPARSE_SIZE = 128, TAR_SPARSE_MAP = 256, TAR_SPARSE_COUNT = 512,
};

/* What pax records and GNU's long names say about the next member. */
struct tar_attributes {
	unsigned set; /* of enum tar_set */
	const char *path, *link, *sparse_name; /* into the records; no zero byte at the end */
	size_t path_length, link_length, sparse_name_length;
	uint64_t size, uid, gid, sparse_size, sparse_count;
	int64_t mtime_ns;
	unsigned sparse_major, sparse_minor;
	struct image_extent *extents; /* of form 0.0 */
	size_t n_extents, capacity;
	uint64_t offset; /* of form 0.0: waits for its length */
	bool has_offset;
	struct image_xattrs xattrs;
	unsigned n_xattrs; /* records of them, of one member */
};

/* Octal digits, or GNU's base 256 (first bit set). Negative only in base 256. 0, or -1: no number. */
int tar_number(const char *field, size_t size, int64_t *value);

/* Whether the sum is right: of unsigned bytes, or of signed ones, as some ancient writers had it. */
bool tar_checksum_is_right(const struct tar_header *header);

/* Decimal digits only. 0, or -1: no number, or one beyond 2^63 - 1. */
int tar_decimal(const char *text, size_t length, uint64_t *value);

/* Applies the body of a pax header. 0, or -1: malformed. */
int tar_pax(const char *text, size_t length, struct tar_attributes *to, struct image_error *err);

void tar_attributes_clear(struct tar_attributes *attributes); /* keeps the memory */
void tar_attributes_free(struct tar_attributes *attributes);

/* 0; -1: no memory, or too many. */
int tar_add_extent(struct tar_attributes *attributes, uint64_t offset, uint64_t length);

/* Removes "." and empty components. Writes at most IMAGE_PATH_LONGEST bytes and a zero byte. */
int tar_clean(const char *name, size_t length, char *to, size_t *to_length, struct image_error *err);

#endif
