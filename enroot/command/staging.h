/* SPDX-License-Identifier: Apache-2.0 */
/* Container roots that are being made or deleted: hidden directories beside the others (in ENROOT_DATA_PATH), each
 * locked by the command that works on it. The next command deletes what a killed one left. */
#ifndef ENROOT_STAGING_H
#define ENROOT_STAGING_H

#include "native/settings/settings.h"

struct staging {
	int data;   /* the folder that it lies in: DATA_PATH, or where a bundle extracts to */
	int lock;   /* the directory itself */
	char *name; /* within that folder */
	char *path;
};

/* Opens DATA_PATH, makes it if need be, and removes what is left of killed commands. Returns a descriptor or -1. */
int staging_data(const struct settings *settings, struct jail_error *err);

/* Makes an empty directory in DATA_PATH. Returns 0 or -1. */
int staging_begin(struct staging *staging, const struct settings *settings, struct jail_error *err);
/* The same in `folder`, where what is left of killed commands is removed first. */
int staging_begin_in(struct staging *staging, const char *folder, struct jail_error *err);

/* Of a container's name; what is said early, and of one that was taken meanwhile. */
#define STAGING_TAKEN "a container of this name exists already; remove it, give another name with --name, or use --force"

/* It becomes the root `name`; one that is there is replaced when `force`. Returns 0 or -1. */
int staging_commit(struct staging *staging, const char *name, bool force, struct jail_error *err);

/* Removes what is left under a hidden name: the directory unless it was committed, and what it replaced. */
void staging_end(struct staging *staging);

/* Takes the root `name` out of sight at once, and then away. Returns 0 or -1. */
int staging_remove(int data, const char *name, struct jail_error *err);

#endif
