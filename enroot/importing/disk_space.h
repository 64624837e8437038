/* SPDX-License-Identifier: Apache-2.0 */
/* Checks before an import whether the disk has room, and explains a full disk afterwards. */
#ifndef IMPORTING_DISK_SPACE_H
#define IMPORTING_DISK_SPACE_H

#include "native/base/error.h"

struct disk_space {
	char place[256];          /* the directory */
	unsigned long long free;  /* bytes that were free at the beginning */
	unsigned long long total; /* of the layers as they are stored; 0: not known */
	int fd;
};

/* `fd` is the file or directory that is written to. Fails when the layers alone, compressed as they are, are more than is free:
 * before a byte of them is fetched. */
int disk_space_check(struct disk_space *space, int fd, unsigned long long total, struct jail_error *err);

/* What to tell after ENOSPC or EDQUOT, `read` bytes of the layers having been read; `temp` is ENROOT_TEMP_PATH, which may be the
 * full one. Fills `err` and returns -1. */
int disk_space_explain(const struct disk_space *space, int number, unsigned long long read, const char *temp, struct jail_error *err);

#endif
