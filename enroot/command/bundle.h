/* SPDX-License-Identifier: Apache-2.0 */
/* A bundle: an executable file that is this program with an image appended. bundle.c makes it,
 * bundle_run.c runs it. */
#ifndef ENROOT_BUNDLE_H
#define ENROOT_BUNDLE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "native/base/error.h"

/* What a bundle knows of itself. */
struct bundle_header {
	char magic[24];
	uint64_t offset; /* of the image in this file; 0: this is no bundle */
	uint64_t files_offset, files_length; /* configuration files: container/bundled_config.h */
	char sha256[72]; /* of the image, in hex; empty: not to be checked */
	char description[512], target[512];
};

/* Whether this program is a bundle; then it has run as one, and `status` is its exit status. */
bool bundle_is_one(int *status, int argc, char **argv);

/* This program's. */
struct bundle_header bundle_own_header(void);

/* The SHA-256 of `fd` from `offset` to its end. Returns 0 or -1. */
int bundle_hash(int fd, off_t offset, char sha256[72], struct jail_error *err);

#endif
