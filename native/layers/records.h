/* SPDX-License-Identifier: Apache-2.0 */
/* Metadata and digest of each file of a tree, kept in an unnamed temporary file: millions of them stay out of memory.
 *
 * One thread adds entries; any may put digests of other nodes at the same time.
 */
#ifndef IMAGE_RECORDS_H
#define IMAGE_RECORDS_H

#include <stdint.h>

#include "entry.h"
#include "tree.h"

struct image_record {
	uint64_t size;
	int64_t mtime_ns;
	uint64_t extra; /* where the target, then the attributes are in the second file */
	uint32_t target_length, xattrs_length;
	uint32_t mode, uid, gid, major, minor;
	uint32_t known; /* 0: nothing was recorded */
	unsigned char digest[32];
};

struct image_records;

/* `folder` is a directory on a local file system for the two files. */
struct image_records *image_records_new(const char *folder, struct image_error *err);
void image_records_free(struct image_records *records);

/* Fills `record` from the entry and stores the target and attributes; not yet the record. */
int image_records_prepare(struct image_records *records, const struct image_entry *entry,
			  struct image_record *record, struct image_error *err);
int image_records_put(struct image_records *records, uint32_t node, const struct image_record *record,
		      struct image_error *err);

/* The same for `count` nodes that follow each other, by as few calls as can be. */
int image_records_put_run(struct image_records *records, uint32_t node, const struct image_record *run, size_t count,
			  struct image_error *err);
/* The same, by the thread that adds entries; many that follow each other are written together. */
int image_records_put_next(struct image_records *records, uint32_t node, const struct image_record *record,
			   struct image_error *err);
/* All of the first `count` nodes into memory, if that is little; nothing may be put afterwards. */
int image_records_load(struct image_records *records, uint32_t count, struct image_error *err);
/* Zeros where nothing was put. */
int image_records_get(struct image_records *records, uint32_t node, struct image_record *record,
		      struct image_error *err);

int image_records_get_many(struct image_records *records, uint32_t node, uint32_t count, struct image_record *all,
			   struct image_error *err);

/* Target and attributes, with room for a zero byte after them, into `*buffer`, which grows. After the last
 * prepare: image_records_flush. */
int image_records_extra(struct image_records *records, const struct image_record *record, unsigned char **buffer,
			size_t *capacity, struct image_error *err);
int image_records_flush(struct image_records *records, struct image_error *err);

/* Fills in what nothing says: a directory that no layer describes is root's, mode 755. The root is that in any
 * case: the jail's plugin refuses one that others may write. */
void image_record_complete(struct image_record *record, uint32_t node);

#endif
