/* SPDX-License-Identifier: Apache-2.0 */
/* Finds where each file of an uncompressed tar archive lies, so that it can be read alone. */
#ifndef IMPORTING_TAR_INDEX_H
#define IMPORTING_TAR_INDEX_H

#include "native/base/text.h"

struct tar_member {
	char *name;
	char *link; /* of a symbolic or hard link: the name that it leads to; else NULL */
	unsigned long long offset, length;
};

/* Starts as { 0 }. */
struct tar_index {
	struct tar_member *members;
	size_t n, capacity;
};

/* Reads the headers alone. `name` stands for the archive in errors. Returns 0 or -1; free it in both cases. */
int tar_index_read(struct tar_index *index, int fd, const char *name, struct jail_error *err);
void tar_index_free(struct tar_index *index);

/* The regular file of that name, through links; NULL: there is none. */
const struct tar_member *tar_index_find(const struct tar_index *index, const char *name);

#endif
