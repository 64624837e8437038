/* SPDX-License-Identifier: Apache-2.0 */
/* The struct in which functions of the jail, the containers and the plugins return an error, and the rules for it.
 *
 * A function that can fail takes a `struct jail_error *` as its last argument and returns -1 (or NULL); only then is
 * the struct meaningful. The first failure fills it, callers above may add where it happened (jail_error_at), nobody
 * overwrites the cause. Nothing in the core prints or exits.
 */
#ifndef JAIL_ERROR_H
#define JAIL_ERROR_H

#include <stdbool.h>
#include <stddef.h>

struct jail_error {
	char file[256];    /* the plan's path, or "" where no plan is involved */
	int line;          /* line in that file, counted from 1; 0 = none */
	char target[256];  /* path in the jail or on the node that is meant, or "" */
	char syscall[24];  /* the call that failed, or "" when a rule was broken instead */
	int number;        /* its errno, or 0 */
	bool inside;       /* the cause lies in the jail's tree, which its users may write */
	char message[512]; /* what was expected and what to do, one sentence, no newline */
};

/* Where messages say that a path of the tree is: "in the jail", unless a program calls its tree something else. */
extern const char *jail_place;

/* Fills `err` and returns -1. `syscall` may be NULL and `number` 0: then a rule was broken, not a call. */
int jail_fail(struct jail_error *err, const char *syscall, int number, const char *format, ...)
	__attribute__((format(printf, 4, 5)));

/* Adds the place in the plan, where none is recorded yet. Any pointer may be NULL. Returns -1. */
int jail_error_at(struct jail_error *err, const char *file, int line, const char *target);

/* Writes the error as one line, e.g.
 *   /etc/cellblock/jail.fstab:7: /data: open_tree: No such file or directory (ENOENT): the source ...
 * into `buffer` (always terminated, cut at `size` bytes). Returns `buffer`. */
char *jail_error_format(const struct jail_error *err, char *buffer, size_t size);

/* Makes `text` fit for a log: control characters, which a path may hold, become "?". Returns `text`. */
char *jail_one_line(char *text);

/* Name of an errno ("ENOENT") without locale or NSS; "errno N" for those not listed. Static storage
 * for known names, else `scratch` (at least 16 bytes) is used. */
const char *jail_errno_name(int number, char scratch[16]);

#endif
