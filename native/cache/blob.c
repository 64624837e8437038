/* SPDX-License-Identifier: Apache-2.0 */
/* Gets one layer for an import. It takes the layer from any user's store, or waits for a process that is downloading
 * it, or lets the caller download it into the own store. enroot/importing/layer_cache_use.c calls it. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "native/base/scoped.h"
#include "native/base/report.h"
#include "draft.h"
#include "lock.h"
#include "record.h"
#include "all_stores.h"
#include "trim.h"

static const char *digits(const struct cache_blob *blob)
{
	return blob->digest + 7;
}

static bool find_blob_in(const struct store *store, struct cache_blob *blob)
{
	struct stat st;
	scoped_fd blobs = store_open_folder(store, store->fd, "blobs");
	scoped_fd fd = blobs < 0 ? -1 : store_open_file(store, blobs, digits(blob), &st);

	/* A stranger's file without an end would keep its reader for ever. */
	if (fd < 0 || (unsigned long long)st.st_size != blob->size || store_is_hollow(&st))
		return false;
	lock_take(fd, LOCK_SHARED);
	/* Was it removed before the lock was there? The descriptor reads it all the same, but on NFS. */
	if (fstat(fd, &st) || !st.st_nlink)
		return false;
	blob->fd = jail_keep(&fd);
	blob->state = CACHE_FOUND;
	return true;
}

/* Anybody's: its reader compares it with its digest. */
static bool find_at_strangers(void *context, struct store *store)
{
	struct cache_blob *blob = context;

	blob->foreign = find_blob_in(store, blob);
	return !blob->foreign;
}

static bool find_blob(struct cache_blob *blob, bool anonymous)
{
	struct cache *cache = blob->cache;

	for (unsigned i = 0; i < cache->n; i++) {
		/* What one's own has may have taken credentials: an image that is for all is made of what is. */
		if (anonymous && cache->shared && &cache->stores[i] == cache->personal)
			continue;
		if ((cache->stores[i].own || !atomic_load(&cache->skip_strangers)) && find_blob_in(&cache->stores[i], blob)) {
			blob->store = &cache->stores[i];
			break;
		}
	}
	if (blob->state != CACHE_FOUND && cache->users >= 0 && !atomic_load(&cache->skip_strangers))
		store_each(cache->users, cache->root, MOST_STRANGERS, find_at_strangers, blob);
	if (blob->state != CACHE_FOUND)
		return false;
	const struct store *marks = blob->store && blob->store->own ? blob->store : cache->shared ? cache->shared : cache->personal;
	if (marks)
		store_mark_used(marks, digits(blob));
	return true;
}

static void make_blob_draft(struct cache_blob *blob)
{
	struct jail_error err;

	blob->draft = draft_begin(blob->store, DRAFT_BLOB, &err);
	if (!blob->draft) {
		report_warn(&err);
		return;
	}
	blob->fd = blob->draft->fd;
	blob->state = CACHE_DRAFT;
}

/* Who downloads it holds its lock where all that could use it see it: a file of everybody's beside the shared stores, else one
 * in the personal store. */
static int open_locks(const struct cache_blob *blob, bool *for_all)
{
	*for_all = blob->locked->shared && blob->cache->locks >= 0;
	if (*for_all)
		return fcntl(blob->cache->locks, F_DUPFD_CLOEXEC, 3);
	return store_folder(blob->locked, "locks");
}

static void acquire(struct cache_blob *blob, bool anonymous, bool may_wait)
{
	struct cache *cache = blob->cache;
	scoped_free char *what = text_format("layer %.19s", blob->digest);
	struct lock_wait wait = { .patience = settings_number(cache->settings, "ENROOT_CACHE_PATIENCE", 60),
				  .most = settings_number(cache->settings, "ENROOT_CACHE_WAIT", 600), .what = what };
	bool for_all;

	if (find_blob(blob, anonymous))
		return;
	const struct store *store = blob->store = blob->locked = cache_writable(cache, anonymous);
	if (!store)
		return;
	scoped_fd locks = open_locks(blob, &for_all);
	do {
		blob->lock = lock_file(locks, digits(blob), for_all);
		int number = errno;
		if (find_blob(blob, anonymous)) {
			lock_file_done(locks, digits(blob), &blob->lock);
			return;
		}
		blob->store = store;
		if (blob->lock >= 0 || number != EAGAIN)
			break;
		if (!may_wait) {
			blob->state = CACHE_BUSY;
			return;
		}
	} while (lock_wait(&wait, locks, digits(blob)));
	lock_tell(blob->lock, 0, 0);
	make_blob_draft(blob);
}

static bool begin_blob(struct cache *cache, const char *digest, unsigned long long size, struct cache_blob *blob)
{
	*blob = (struct cache_blob){ .state = CACHE_UNUSABLE, .fd = -1, .lock = -1, .cache = cache, .size = size };
	if (!record_is_digest(digest) || !settings_true(cache->settings, "ENROOT_CACHE_LAYERS"))
		return false;
	memcpy(blob->digest, digest, sizeof(blob->digest));
	return true;
}

void cache_blob_acquire(struct cache *cache, const char *digest, unsigned long long size, bool anonymous,
			struct cache_blob *blob)
{
	if (begin_blob(cache, digest, size, blob))
		acquire(blob, anonymous, true);
}

void cache_blob_try(struct cache *cache, const char *digest, unsigned long long size, bool anonymous, struct cache_blob *blob)
{
	if (begin_blob(cache, digest, size, blob))
		acquire(blob, anonymous, false);
}

bool cache_blob_is_anonymous(const struct cache_blob *blob)
{
	return blob->state == CACHE_FOUND && (blob->foreign || (blob->store && blob->store->shared));
}

void cache_blob_progress(struct cache_blob *blob, unsigned long long done, unsigned long long total)
{
	lock_tell(blob->lock, done, total);
}

static void unlock_blob(struct cache_blob *blob)
{
	bool for_all;
	scoped_fd locks = blob->lock >= 0 ? open_locks(blob, &for_all) : -1;

	lock_file_done(locks, digits(blob), &blob->lock);
}

/* Where it is to be kept. -1: nowhere; it stays a draft, which nobody else can read. */
static int choose_blob_store(struct cache_blob *blob, bool anonymous)
{
	const struct store *store = cache_writable(blob->cache, anonymous);
	struct jail_error ignored;

	if (!blob->store->shared || store == blob->store)
		return 0;
	if (!store || draft_move(&blob->draft, store, &ignored))
		return -1;
	blob->fd = blob->draft->fd;
	blob->store = store;
	return 0;
}

/* No fsync: a layer that a power cut took is told by its digest, which every reader compares. */
int cache_blob_commit(struct cache_blob *blob, bool anonymous, struct jail_error *err)
{
	struct jail_error full;
	struct stat st;

	if (blob->state != CACHE_DRAFT || fstat(blob->fd, &st))
		return jail_fail(err, NULL, EINVAL, "there is no layer to commit");
	/* Without room it stays a draft: its reader has it, and it goes with it. */
	if (!choose_blob_store(blob, anonymous) && !trim_make_room(blob->cache, blob->store, st.st_size, &full)) {
		if (fchmod(blob->fd, blob->store->shared ? 0444 : 0400))
			return jail_fail(err, "fchmod", errno, "cannot make a layer in the cache readable");
		if (draft_publish_blob(blob->draft, blob->store, digits(blob), err))
			return -1;
		blob->fd = jail_keep(&blob->draft->fd);
		draft_end(blob->draft);
		blob->draft = NULL;
		store_mark_used(blob->store, digits(blob));
	}
	blob->state = CACHE_FOUND;
	unlock_blob(blob);
	return 0;
}

void cache_skip_strangers(struct cache *cache)
{
	if (!atomic_exchange(&cache->skip_strangers, true))
		report_warning("reading layers failed, of which some are of other users' caches and may have been changed meanwhile; "
			       "once more without those");
}

void cache_blob_reject(struct cache_blob *blob)
{
	if (blob->foreign) {
		atomic_store(&blob->cache->skip_strangers, true);
		report_warning("%.19s of another user's cache is not what its name says; no layers of other users are used now",
			       blob->digest);
	} else if (blob->store) {
		report_warning("%.19s in the cache %s is damaged%s", blob->digest, blob->store->path,
			       blob->store->own ? " and is removed" : "; its owner can remove it: enroot cache verify --repair");
		if (blob->store->own)
			draft_remove(blob->store, "blobs", digits(blob), true);
		else
			/* It stays where it is, and would be found again. */
			atomic_store(&blob->cache->skip_strangers, true);
	}
}

void cache_blob_release(struct cache_blob *blob)
{
	if (!blob->draft)
		jail_close(&blob->fd);
	draft_end(blob->draft);
	unlock_blob(blob);
	*blob = (struct cache_blob){ .state = CACHE_UNUSABLE, .fd = -1, .lock = -1 };
}
