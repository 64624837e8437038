/* SPDX-License-Identifier: Apache-2.0 */
/* The struct in which functions that read and write images return an error, and the rules for it.
 *
 * A function that can fail takes a `struct image_error *` as its last argument and returns -1 (or NULL); only then is
 * the struct meaningful. The first failure fills it, nobody overwrites the cause. Nothing in the core prints or
 * exits.
 */
#ifndef IMAGE_ERROR_H
#define IMAGE_ERROR_H

#include <stdbool.h>
#include <stddef.h>

enum image_fault {
	IMAGE_FAULT_NONE,
	IMAGE_FAULT_SYSTEM,    /* a system call failed: `syscall` and `number` say which and why */
	IMAGE_FAULT_SOURCE,    /* the source is damaged, cut off or hostile */
	IMAGE_FAULT_LOSSY,     /* the target cannot hold something of the image */
	IMAGE_FAULT_CHANGED,   /* a file of the source changed while it was read */
	IMAGE_FAULT_CANCELLED, /* the caller asked to stop */
	IMAGE_FAULT_LIMIT,     /* the source is whole, and asks for more than is taken */
	IMAGE_FAULT_ABSENT,    /* a listing does not say what is needed: the layer itself has to be read */
};

struct image_error {
	enum image_fault fault;
	char path[512];    /* path in the image that is meant, or "" */
	char syscall[24];  /* the call that failed, or "" when a rule was broken instead */
	int number;        /* its errno, or 0 */
	char message[512]; /* what was expected and found, one sentence, no newline */
};

/* Fills `err` and returns -1. */
int image_fail(struct image_error *err, enum image_fault fault, const char *path, const char *format, ...)
	__attribute__((format(printf, 4, 5)));

/* Fills `err` from a failed call and returns -1. */
int image_fail_call(struct image_error *err, const char *path, const char *syscall, int number);

/* For memory that is not there, or room for the file that stands for it; errno says which. Returns -1. */
int image_fail_memory(struct image_error *err);

#endif
