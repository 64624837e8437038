/* SPDX-License-Identifier: Apache-2.0 */
/* Finds other programs, runs them and waits for them. They are killed when the caller dies. */
#ifndef ENROOT_PROGRAM_H
#define ENROOT_PROGRAM_H

#include <sys/types.h>

#include "text.h"

#define PROGRAM_NOT_PREPARED 126 /* exit status */

struct program {
	char *const *arguments;   /* [0] is looked up in PATH unless it holds a "/" */
	char *const *environment; /* NULL: this one's */
	bool quiet;               /* standard output is thrown away */
	bool (*prepare)(void);    /* runs in the child before exec; false: PROGRAM_NOT_PREPARED. May be NULL */
	struct text_buffer *output; /* takes standard output; may be NULL */
	int input;                /* descriptor that becomes standard input; 0: this one's */
	unsigned seconds;         /* it is killed after so many; 0: never */
	size_t most;              /* bytes of output after which it is killed; 0: any number */
};

/* Runs it to its end. Returns its exit status, 128 + N after signal N; -1 with `err` when it could not be
 * started, or was killed (err->number ETIMEDOUT or EFBIG). */
int program_run(const struct program *program, struct jail_error *err);

/* The path of `name` in PATH and in the directories that users' paths lack, or NULL; the caller frees it. */
char *program_find(const char *name);

#endif
