/* SPDX-License-Identifier: Apache-2.0 */
/* A store: a directory of the cache that belongs to one user, and in which that user alone can write.
 *
 *    images/KEY/image.sqsh, record   whole images
 *    blobs/DIGEST                    layers
 *    drafts/                         what is being made; locked while its maker lives
 *    locks/KEY                       held by the one who imports KEY
 *    used/KEY                        its time is when the owner of the store last used it, whosever entry it was
 *    names/KEY                       what digest a reference stood for
 *
 * The path is walked descriptor by descriptor, and each directory must belong to the owner: an entry cannot have been
 * put there, renamed or exchanged by anybody else, even where the directory above is everybody's.
 */
#ifndef ENROOT_CACHE_STORE_H
#define ENROOT_CACHE_STORE_H

#include <sys/stat.h>
#include <sys/types.h>

#include "native/settings/settings.h"

struct store {
	int fd;
	uid_t owner;
	bool own;    /* ours to write */
	bool shared; /* of the administrator's directory: others read it */
	char *path;
};

/* The store of ENROOT_CACHE_PATH, made when missing with mode 0700. Returns 0 or -1. */
int store_open_personal(struct store *store, const struct settings *settings, struct jail_error *err);

/* The administrator's directory: belongs to root, who alone can write there and above; `users` in it is everybody's and
 * sticky, or root's. Returns a descriptor of `users`, or -1; `locks` is that of `locks` beside it, or -1. */
int store_open_users(const char *path, int *locks, struct jail_error *err);

/* The store users/UID; `make`: it is ours, and made when missing. Returns 0, or -1 (err->number ENOENT: there is none). */
int store_open_shared(struct store *store, int users, const char *root, uid_t owner, bool make, struct jail_error *err);

void store_close(struct store *store);

/* A directory of it; made when it is missing and ours. Returns a descriptor or -1 and errno. */
int store_folder(const struct store *store, const char *name);

/* Opens a file to read that belongs to the owner, who alone can write it. Returns a descriptor and fills `st`, or -1 and errno
 * (EPERM: the file is not to be trusted). */
int store_open_file(const struct store *store, int folder, const char *name, struct stat *st);

/* Whether a file claims far more bytes than it takes on the disk: made of holes, to keep its readers at it for hours. No file
 * system compresses images or layers, which are compressed already, that much. */
bool store_is_hollow(const struct stat *st);

/* The same for a directory. */
int store_open_folder(const struct store *store, int folder, const char *name);

/* Marks `key` as used now. Best effort. */
void store_mark_used(const struct store *store, const char *key);
/* When it was last used according to this store, seconds since the epoch; 0: never. The future is now. */
time_t store_used(const struct store *store, const char *key);

/* Visits the stores in `users`, at most `most` of them; `visit` returns false to end it. The store is closed after it. */
void store_each(int users, const char *root, unsigned most, bool (*visit)(void *context, struct store *store), void *context);

#endif
