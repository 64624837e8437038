/* SPDX-License-Identifier: Apache-2.0 */
/* Compares files of a volume with lines of its manifest, in threads: metadata, and content where asked.
 *
 * Users write the tree. So no symbolic link is followed on the way to a file; a caller hears that a path was blocked
 * by one. cellblock/jail/tree/manifest.py says what a line is and what is compared.
 */
#ifndef VOLUME_CHECK_H
#define VOLUME_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "error.h"

/* What is different, as bits. VOLUME_ATTRIBUTES says that somebody has to look: a name is there or should be. */
enum volume_difference {
	VOLUME_MISSING = 1,
	VOLUME_KIND = 2,
	VOLUME_MODE = 4,
	VOLUME_OWNER = 8,
	VOLUME_SIZE = 16,
	VOLUME_TIME = 32,
	VOLUME_TARGET = 64,
	VOLUME_DEVICE = 128,
	VOLUME_LINK = 256,
	VOLUME_CONTENT = 512,
	VOLUME_ATTRIBUTES = 1024,
	VOLUME_UNREADABLE = 2048,
};

struct volume_finding {
	size_t offset; /* of the line's first byte in the text */
	unsigned bits; /* enum volume_difference */
	int number;    /* errno of what could not be read, or 0 */
};

struct volume_check {
	int root;          /* descriptor of the tree */
	const char *text;  /* whole lines */
	size_t length;     /* in bytes */
	unsigned threads;
	bool content;      /* hash the regular files too */
	struct volume_finding *findings;
	size_t capacity;   /* as many as there are lines are enough */
	size_t n_findings; /* out, in no order */
	uint64_t bytes;    /* out: content that was read */
};

/* Returns 0, or -1 with `err`: a line that is no manifest's, too little memory, no libcrypto. */
int volume_check(struct volume_check *check, struct volume_error *err);

#endif
