/* SPDX-License-Identifier: Apache-2.0 */
/* A draft: an image or layer of the cache while it is being made, in a hidden directory that
 * its process keeps locked. */
#ifndef ENROOT_CACHE_DRAFT_H
#define ENROOT_CACHE_DRAFT_H

#include "store.h"

#define DRAFT_IMAGE "image.sqsh"
#define DRAFT_BLOB "blob"
#define DRAFT_RECORD "record"

struct cache_draft {
	int drafts, folder;
	int fd;           /* the file, to write */
	const char *file; /* DRAFT_IMAGE or DRAFT_BLOB */
	char *name;       /* of the folder, in `drafts` */
};

/* Makes an empty draft. NULL with `err`. */
struct cache_draft *draft_begin(const struct store *store, const char *file, struct jail_error *err);

/* The draft goes on in another store: what was begun for all users, and is for one. `*draft` may become another. Returns 0 or -1. */
int draft_move(struct cache_draft **draft, const struct store *store, struct jail_error *err);

/* The folder becomes the image `key`; one that is there stays. `fd` becomes a descriptor that reads and holds a shared lock.
 * Returns 0, 1 when there is one of that name already, or -1. */
int draft_publish_image(struct cache_draft *draft, const struct store *store, const char *key, struct jail_error *err);
/* The same for the file, which becomes the layer `name`. */
int draft_publish_blob(struct cache_draft *draft, const struct store *store, const char *name, struct jail_error *err);

/* Removes it unless it was published. */
void draft_end(struct cache_draft *draft);

/* Removes what is left of processes that are no more, in a store of one's own. */
void draft_sweep(const struct store *store);

/* Removes the locks of one's own killed processes. Whoever comes takes a lock over, so this is about files that nobody would look
 * at any more. */
void draft_sweep_locks(int folder);

/* Takes images/KEY or blobs/KEY away. Returns the bytes freed; 0 when somebody uses it and `force` is false; -1 and errno. */
long long draft_remove(const struct store *store, const char *kind, const char *key, bool force);

#endif
