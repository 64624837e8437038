/* SPDX-License-Identifier: Apache-2.0 */
/* The digest of an image file that its record has, for noticing damage: SHA-256 over the SHA-256 of each MiB, so that
 * many are computed at once. It is no protection against attackers: that is the file's owner. */
#ifndef ENROOT_CACHE_CONTENT_DIGEST_H
#define ENROOT_CACHE_CONTENT_DIGEST_H

#include "native/base/error.h"

/* Reads all of `fd`, `size` bytes, on `threads` threads. Writes 64 digits. -1: it cannot be read, or is shorter. */
int content_digest(int fd, unsigned long long size, unsigned threads, char digits[65], struct jail_error *err);

/* The same as one SHA-256, as registries have it; of a file that is longer than `size` not all. */
int content_sha256(int fd, unsigned long long size, char digits[65], struct jail_error *err);

/* All of `from` into `to`, an empty file. Returns 0 or -1. */
int content_copy(int from, int to, struct jail_error *err);

#endif
