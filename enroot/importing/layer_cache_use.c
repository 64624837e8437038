/* SPDX-License-Identifier: Apache-2.0 */
/* Takes layers of a registry's image from the cache, and stores the others there while they are downloaded. import_source.c
 * calls it. */
#define _GNU_SOURCE
#include "layer_cache_use.h"

#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "native/base/scoped.h"
#include "native/cache/content_digest.h"

/* Left for connections, pipes and files, where an image has hundreds of layers and the limit of open files is low: the cache does
 * without the last of them. */
#define DESCRIPTORS 160

void layer_cache_use_begin(struct layer_cache_use *kept, struct cache *cache, struct registry *registry,
			   const struct registry_image *image)
{
	unsigned n = image->n_layers;
	long files = sysconf(_SC_OPEN_MAX), most = files < 0 ? LONG_MAX : files - DESCRIPTORS, last = -1;

	*kept = (struct layer_cache_use){ .image = image, .registry = registry,
				      .anonymous = image->anonymous && !registry_identified(registry),
				      .blobs = calloc(n + 1u, sizeof(*kept->blobs)), .skip = calloc(n + 1u, sizeof(*kept->skip)),
				      .keep = calloc(n + 1u, sizeof(*kept->keep)) };
	for (unsigned i = 0; kept->keep && i < n; i++)
		kept->keep[i] = -1; /* 0 would be standard input */
	if (!cache || !kept->blobs || !kept->skip || !kept->keep)
		return;
	kept->cache = cache;
	for (unsigned i = 0; i < n; i++) {
		struct cache_blob *blob = &kept->blobs[i];
		if (last > 0 && last > most) {
			*blob = (struct cache_blob){ .state = CACHE_UNUSABLE, .fd = -1, .lock = -1 };
			continue;
		}
		cache_blob_try(cache, image->layers[i].digest, image->layers[i].size, kept->anonymous, blob);
		kept->skip[i] = blob->state == CACHE_FOUND || blob->state == CACHE_BUSY;
		kept->keep[i] = blob->state == CACHE_DRAFT ? blob->fd : -1;
		/* Descriptors are given in their order. */
		last = blob->fd > last ? blob->fd : last;
	}
}

int layer_cache_use_open(struct layer_cache_use *kept, unsigned layer)
{
	struct cache_blob *blob = kept->cache ? &kept->blobs[layer] : NULL;

	if (blob && blob->state == CACHE_BUSY) {
		const struct registry_layer *wanted = &kept->image->layers[layer];
		cache_blob_release(blob);
		cache_blob_acquire(kept->cache, wanted->digest, wanted->size, kept->anonymous, blob);
		/* Whoever had it gave up. The registry's threads run already, and take no more files. */
		if (blob->state == CACHE_DRAFT)
			cache_blob_release(blob);
	}
	if (!blob || blob->state != CACHE_FOUND || lseek(blob->fd, 0, SEEK_SET))
		return -1;
	return fcntl(blob->fd, F_DUPFD_CLOEXEC, 3);
}

void layer_cache_use_progress(struct layer_cache_use *kept)
{
	struct stat st;

	for (unsigned i = 0; kept->cache && i < kept->image->n_layers; i++)
		if (kept->blobs[i].state == CACHE_DRAFT && !fstat(kept->blobs[i].fd, &st))
			cache_blob_progress(&kept->blobs[i], (unsigned long long)st.st_size, kept->image->layers[i].size);
}

void layer_cache_use_commit(struct layer_cache_use *kept)
{
	struct jail_error ignored;
	struct stat st;

	for (unsigned i = 0; kept->cache && i < kept->image->n_layers; i++) {
		struct cache_blob *blob = &kept->blobs[i];
		bool anonymous = blob->state == CACHE_FOUND ? cache_blob_is_anonymous(blob)
				 : registry_layer_is_anonymous(kept->registry, i);
		kept->anonymous &= anonymous;
		/* Shorter: there was no room. */
		if (blob->state == CACHE_DRAFT && !fstat(blob->fd, &st) &&
		    (unsigned long long)st.st_size == kept->image->layers[i].size)
			cache_blob_commit(blob, anonymous, &ignored);
		cache_blob_release(blob);
	}
}

/* Whose file it is may have changed it back by now: that its digest is right says nothing of what was read. */
static bool took_foreign(const struct layer_cache_use *kept)
{
	for (unsigned i = 0; kept->cache && i < kept->image->n_layers; i++)
		if (kept->blobs[i].state == CACHE_FOUND && kept->blobs[i].foreign)
			return true;
	return false;
}

bool layer_cache_use_failed(struct layer_cache_use *kept)
{
	struct jail_error ignored;
	char digits[65];

	for (unsigned i = 0; kept->cache && i < kept->image->n_layers; i++) {
		struct cache_blob *blob = &kept->blobs[i];
		if (blob->state != CACHE_FOUND ||
		    (!content_sha256(blob->fd, blob->size, digits, &ignored) && !strcmp(digits, blob->digest + strlen("sha256:"))))
			continue;
		cache_blob_reject(blob);
		kept->rejected = true;
	}
	if (took_foreign(kept)) {
		cache_skip_strangers(kept->cache);
		kept->rejected = true;
	}
	return kept->rejected;
}

void layer_cache_use_end(struct layer_cache_use *kept)
{
	for (unsigned i = 0; kept->cache && kept->blobs && i < kept->image->n_layers; i++)
		cache_blob_release(&kept->blobs[i]);
	free(kept->blobs);
	free(kept->skip);
	free(kept->keep);
	*kept = (struct layer_cache_use){ .cache = NULL };
}
