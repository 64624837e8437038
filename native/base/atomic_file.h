/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a file so that its name never leads to a half-written one: the name comes when the content is complete. A
 * killed command leaves nothing. */
#ifndef ENROOT_ATOMIC_FILE_H
#define ENROOT_ATOMIC_FILE_H

#include <stdbool.h>
#include <sys/types.h>

#include "error.h"

struct atomic_file {
	int fd, folder;
	char *path;  /* where it will be */
	char *name;  /* within the folder */
	char *draft; /* its name until then, where the file system has no nameless files; else NULL */
	bool force;
};

/* A name beside `name` for what is to become it, which nobody can foresee; a new string. */
char *atomic_file_draft_name(const char *name);

/* Opens a file that will be `path`. -1: it exists already and `force` is false, or it cannot be made. */
int atomic_file_open(struct atomic_file *output, const char *path, bool force, struct jail_error *err);

/* Gives it its name and `mode`. Returns 0 or -1. */
int atomic_file_commit(struct atomic_file *output, mode_t mode, struct jail_error *err);

/* After a commit, or instead of it. */
void atomic_file_close(struct atomic_file *output);

#endif
