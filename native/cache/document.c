/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps manifests and image configurations of registries in the cache, and finds them there. Those that a registry
 * gives to anybody lie in the store that all users read. enroot/importing/cached_image.c and load.c hand its
 * functions to the registry client, which calls them. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "native/base/scoped.h"
#include "draft.h"
#include "record.h"
#include "all_stores.h"

/* Registries refuse larger manifests. */
#define MOST_BYTES (8 * 1024 * 1024)

static char *load(const struct store *store, const char *digest, size_t *length)
{
	struct jail_error ignored;
	struct stat st;
	scoped_fd blobs = store_open_folder(store, store->fd, "blobs");
	scoped_fd fd = blobs < 0 ? -1 : store_open_file(store, blobs, digest + 7, &st);
	char *text = fd < 0 ? NULL : text_read_open(fd, digest, MOST_BYTES, length, &ignored);

	if (text && store->own)
		store_mark_used(store, digest + 7);
	return text;
}

/* The shared stores first: what lies there, all may have. */
char *cache_document_load(void *context, const char *digest, size_t *length, bool *anonymous)
{
	const struct cache *cache = context;

	for (int shared = 1; shared >= 0; shared--)
		for (unsigned i = 0; i < cache->n && record_is_digest(digest); i++) {
			char *text = cache->stores[i].shared == shared ? load(&cache->stores[i], digest, length) : NULL;
			*anonymous = shared;
			if (text)
				return text;
		}
	return NULL;
}

/* What a registry says about a private image is as private. */
void cache_document_keep(void *context, const char *digest, const char *text, size_t length, bool anonymous)
{
	const struct cache *cache = context;
	const struct store *store = cache_writable(cache, anonymous);
	struct jail_error ignored;

	if (!store || !record_is_digest(digest) || length > MOST_BYTES)
		return;
	struct cache_draft *draft = draft_begin(store, DRAFT_BLOB, &ignored);
	if (draft && !text_write(draft->fd, text, length) && !fchmod(draft->fd, store->shared ? 0444 : 0400))
		draft_publish_blob(draft, store, digest + 7, &ignored);
	draft_end(draft);
}
