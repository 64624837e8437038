/* SPDX-License-Identifier: Apache-2.0 */
/* A file that is there whole or not at all: nameless until it is complete, so that a killed command leaves nothing. */
#ifndef ENROOT_OUTPUT_H
#define ENROOT_OUTPUT_H

#include <stdbool.h>
#include <sys/types.h>

#include "error.h"

struct output {
	int fd, folder;
	char *path;  /* where it will be */
	char *name;  /* within the folder */
	char *draft; /* its name until then, where the file system has no nameless files; else NULL */
	bool force;
};

/* A name beside `name` for what is to become it, which nobody can foresee; a new string. */
char *output_draft_name(const char *name);

/* Opens a file that will be `path`. -1: it exists already and `force` is false, or it cannot be made. */
int output_open(struct output *output, const char *path, bool force, struct jail_error *err);

/* Gives it its name and `mode`. Returns 0 or -1. */
int output_commit(struct output *output, mode_t mode, struct jail_error *err);

/* After a commit, or instead of it. */
void output_close(struct output *output);

#endif
