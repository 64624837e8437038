/* SPDX-License-Identifier: Apache-2.0 */
/* Gets one image for an import. It finds the image in a store, or waits for a process that is making it, or keeps the
 * one that the caller makes. enroot/importing/cached_image.c calls it. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "native/base/scoped.h"
#include "native/layers/hash.h"
#include "native/base/report.h"
#include "content_digest.h"
#include "draft.h"
#include "entry.h"
#include "lock.h"
#include "all_stores.h"
#include "trim.h"

static bool find_image_in(const struct store *store, struct cache_image *image)
{
	scoped_record record = { 0 };
	struct jail_error err;
	int fd = entry_open(store, image->key, &record, &err);

	if (fd < 0) {
		if (err.number != ENOENT)
			report_warn(&err);
		/* One's own would stand in the way of the next. */
		if (err.number == EBADMSG && store->own)
			draft_remove(store, "images", image->key, true);
		return false;
	}
	image->fd = fd;
	image->store = store;
	image->state = CACHE_FOUND;
	image->path = text_format("%s/images/%s/" DRAFT_IMAGE, store->path, image->key);
	return true;
}

static bool find_image(struct cache_image *image)
{
	struct cache *cache = image->cache;

	for (unsigned i = 0; i < cache->n; i++) {
		if (!find_image_in(&cache->stores[i], image))
			continue;
		/* Whosever it is, the mark is in a store of one's own. */
		const struct store *marks = cache->stores[i].own ? &cache->stores[i] : cache->shared ? cache->shared : cache->personal;
		if (marks)
			store_mark_used(marks, image->key);
		return true;
	}
	return false;
}

static int begin_image(struct cache *cache, const struct cache_request *request, struct cache_image *image)
{
	struct jail_error err;

	*image = (struct cache_image){ .state = CACHE_UNUSABLE, .fd = -1, .lock = -1, .cache = cache, .request = *request };
	if (!settings_true(cache->settings, "ENROOT_CACHE_IMAGES"))
		return -1;
	if (!record_key(request, image->key, &err))
		return 0;
	report_warn(&err);
	return -1;
}

bool cache_find(struct cache *cache, const struct cache_request *request, struct cache_image *image)
{
	return !begin_image(cache, request, image) && find_image(image);
}

static void make_image_draft(struct cache_image *image)
{
	struct jail_error err;

	image->draft = draft_begin(image->store, DRAFT_IMAGE, &err);
	if (!image->draft) {
		report_warn(&err);
		return;
	}
	image->fd = image->draft->fd;
	image->state = CACHE_DRAFT;
}

void cache_acquire(struct cache *cache, const struct cache_request *request, struct cache_image *image)
{
	struct lock_wait wait = { .patience = settings_number(cache->settings, "ENROOT_CACHE_PATIENCE", 60),
				  .most = settings_number(cache->settings, "ENROOT_CACHE_WAIT", 600), .what = request->reference };

	if (begin_image(cache, request, image) || find_image(image))
		return;
	image->store = image->locked = cache_writable(cache, request->anonymous);
	if (!image->store)
		return;
	scoped_fd locks = store_folder(image->store, "locks");
	do {
		const struct store *store = image->store;
		image->lock = lock_file(locks, image->key, false);
		int number = errno;
		/* The one who had it has finished, perhaps, between the look and the lock. */
		if (find_image(image)) {
			lock_file_done(locks, image->key, &image->lock);
			return;
		}
		image->store = store;
		if (image->lock >= 0 || number != EAGAIN)
			break;
	} while (lock_wait(&wait, locks, image->key));
	lock_tell(image->lock, 0, 0);
	make_image_draft(image);
}

void cache_progress(struct cache_image *image, unsigned long long done, unsigned long long total)
{
	lock_tell(image->lock, done, total);
	/* The disk begins now, so that the end need not wait for all of it. */
	if (image->state == CACHE_DRAFT)
		sync_file_range(image->fd, 0, 0, SYNC_FILE_RANGE_WRITE);
}

bool cache_is_full(const struct cache_image *image)
{
	/* A user's quota is not in what statvfs tells, so: try. */
	return image->state == CACHE_DRAFT && fallocate(image->fd, FALLOC_FL_KEEP_SIZE, lseek(image->fd, 0, SEEK_END), 4 << 20) &&
	       (errno == ENOSPC || errno == EDQUOT);
}

static int describe(const struct cache_image *image, struct record *record, struct jail_error *err)
{
	const struct cache_request *request = &image->request;
	long threads = settings_number(image->cache->settings, "ENROOT_MAX_PROCESSORS", 1);
	struct stat st;

	if (fstat(image->fd, &st))
		return jail_fail(err, "fstat", errno, "cannot look at the image");
	*record = (struct record){ .reference = text_copy(request->reference, strlen(request->reference)),
				   .digest = text_copy(request->digest, strlen(request->digest)),
				   .platform = text_copy(request->platform, strlen(request->platform)),
				   .size = (unsigned long long)st.st_size, .made = time(NULL) };
	memcpy(record->key, image->key, sizeof(record->key));
	for (const char *const *option = request->options; option && *option; option++)
		text_list_add(&record->options, *option);
	sync_file_range(image->fd, 0, 0, SYNC_FILE_RANGE_WRITE);
	return content_digest(image->fd, record->size, threads > 0 ? (unsigned)threads : 1, record->content, err);
}

/* On the disk, with the mode and the time that it keeps. */
static int settle(const struct cache_image *image, struct record *record, struct jail_error *err)
{
	mode_t mode = image->store->shared ? 0444 : 0444 & ~image->cache->mask;
	const struct timespec times[2] = { { .tv_nsec = UTIME_OMIT }, { .tv_nsec = UTIME_NOW } };
	struct stat st;

	if (fdatasync(image->fd) || fchmod(image->fd, mode) || futimens(image->fd, times) || fstat(image->fd, &st))
		return jail_fail(err, "fdatasync", errno, "cannot write the image to the disk");
	record->changed = st.st_mtim;
	return entry_write_record(image->draft->folder, record, image->store->shared ? 0444 : 0400, err);
}

/* It has its name, or another's has: the draft is no more, and `image` is a found one. */
static int publish(struct cache_image *image, struct jail_error *err)
{
	const struct store *store = image->store;

	for (int i = 0; i < 2; i++) {
		int result = draft_publish_image(image->draft, store, image->key, err);
		if (result < 0)
			return -1;
		if (!result) {
			image->fd = jail_keep(&image->draft->fd);
			image->state = CACHE_FOUND;
			image->path = text_format("%s/images/%s/" DRAFT_IMAGE, store->path, image->key);
			store_mark_used(store, image->key);
			break;
		}
		/* Removes what is damaged. */
		if (find_image_in(store, image))
			break;
	}
	if (image->state != CACHE_FOUND)
		return jail_fail(err, NULL, EEXIST, "an image in the cache can neither be used nor removed");
	draft_end(image->draft);
	image->draft = NULL;
	return 0;
}

static void unlock_image(struct cache_image *image)
{
	scoped_fd locks = image->lock >= 0 ? store_folder(image->locked, "locks") : -1;

	lock_file_done(locks, image->key, &image->lock);
}

/* Where it is to be kept. -1: nowhere; it stays a draft, which nobody else can read. */
static int choose_image_store(struct cache_image *image, bool anonymous, struct jail_error *err)
{
	const struct store *store = cache_writable(image->cache, anonymous);

	if (!image->store->shared || store == image->store)
		return 0;
	if (!store)
		return jail_fail(err, NULL, 0, "%s: it is not for all users, and there is no personal cache to keep it in",
				 image->request.reference);
	if (draft_move(&image->draft, store, err))
		return -1;
	image->fd = image->draft->fd;
	image->store = store;
	return 0;
}

int cache_commit(struct cache_image *image, bool anonymous, struct jail_error *err)
{
	scoped_record record = { 0 };
	struct jail_error full;
	struct stat st;

	if (image->state != CACHE_DRAFT)
		return jail_fail(err, NULL, EINVAL, "there is no draft to commit");
	if (fstat(image->fd, &st))
		return jail_fail(err, "fstat", errno, "cannot look at the image");
	/* Not for ever: what the user asked for is there, and goes when it was delivered. */
	if (choose_image_store(image, anonymous, &full) || trim_make_room(image->cache, image->store, st.st_size, &full)) {
		report_info("%s", full.message);
		image->state = CACHE_FOUND;
		image->path = text_format("%s/drafts/%s/" DRAFT_IMAGE, image->store->path, image->draft->name);
	} else if (describe(image, &record, err) || settle(image, &record, err) || publish(image, err)) {
		return -1;
	}
	unlock_image(image);
	return 0;
}

void cache_release(struct cache_image *image)
{
	if (!image->draft)
		jail_close(&image->fd);
	draft_end(image->draft);
	unlock_image(image);
	free(image->path);
	*image = (struct cache_image){ .state = CACHE_UNUSABLE, .fd = -1, .lock = -1 };
}

static bool name_key(const char *reference, const char *platform, char key[65])
{
	unsigned char digest[32];
	struct image_hash hash;

	if (image_hash_begin(&hash))
		return false;
	image_hash_add(&hash, reference, strlen(reference) + 1);
	image_hash_add(&hash, platform, strlen(platform) + 1);
	image_hash_end(&hash, digest);
	image_hash_digits(digest, key);
	return true;
}

bool cache_recall(struct cache *cache, const char *reference, const char *platform, char digest[72])
{
	char key[65];
	struct stat st;

	for (unsigned i = 0; i < cache->n && name_key(reference, platform, key); i++) {
		scoped_fd names = store_open_folder(&cache->stores[i], cache->stores[i].fd, "names");
		scoped_fd fd = names < 0 ? -1 : store_open_file(&cache->stores[i], names, key, &st);
		if (fd < 0 || read(fd, digest, 71) != 71)
			continue;
		digest[71] = '\0';
		if (record_is_digest(digest))
			return true;
	}
	return false;
}

void cache_remember(struct cache *cache, const char *reference, const char *platform, const char *digest)
{
	/* What a user asked for is no other's business. */
	const struct store *store = cache->personal;
	char key[65];

	if (!store || !record_is_digest(digest) || !name_key(reference, platform, key))
		return;
	scoped_fd names = store_folder(store, "names");
	scoped_fd fd = names < 0 ? -1 : openat(names, key, O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
	/* One write of always the same length: there is never half of it. */
	if (fd >= 0 && write(fd, digest, 71) != 71)
		unlinkat(names, key, 0);
}
