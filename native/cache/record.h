/* SPDX-License-Identifier: Apache-2.0 */
/* The record beside a cached image, in lines "KEY VALUE": from what it was made, and size and digest of its file. */
#ifndef ENROOT_CACHE_RECORD_H
#define ENROOT_CACHE_RECORD_H

#include <time.h>

#include "cache.h"

#define RECORD_MOST (64 * 1024)

struct record {
	char *reference, *digest, *platform;
	struct text_list options;
	char key[65];
	char content[65]; /* content_digest.h */
	unsigned long long size;
	struct timespec changed; /* mtime of the image's file */
	time_t made;
};

/* The key of a request: 64 digits, SHA-256 over all that decides about the bytes. -1: a part of it has a newline, or the
 * digest is none. */
int record_key(const struct cache_request *request, char key[65], struct jail_error *err);

/* Whether it is "sha256:" and 64 lower-case digits. */
bool record_is_digest(const char *text);

/* The text of a record; the caller frees it. */
char *record_format(const struct record *record);
/* Returns 0, or -1 when it is damaged. */
int record_parse(struct record *record, const char *text, struct jail_error *err);
void record_free(struct record *record);

#define scoped_record __attribute__((cleanup(record_free))) struct record

#endif
