/* SPDX-License-Identifier: Apache-2.0 */
/* Opens the images of a store, and checks that each is as its record says. */
#ifndef ENROOT_CACHE_ENTRY_H
#define ENROOT_CACHE_ENTRY_H

#include "record.h"
#include "store.h"

/* Opens the image `key`: it and its record belong to the owner of the store and are as they were when it was made. The
 * descriptor holds a shared lock; the record is filled. Returns it, or -1; err->number is ENOENT when there is none, and
 * EBADMSG when it is not what its record says. */
int entry_open(const struct store *store, const char *key, struct record *record, struct jail_error *err);

/* Writes the record beside a draft's file. Returns 0 or -1. */
int entry_write_record(int folder, const struct record *record, mode_t mode, struct jail_error *err);

#endif
