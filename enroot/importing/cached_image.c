/* SPDX-License-Identifier: Apache-2.0 */
/* Gets an image as a squashfs file: from the cache, or by importing it into the cache. cache_get.c
 * and import.c call it. */
#define _GNU_SOURCE
#include "cached_image.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "native/base/report.h"
#include "progress.h"

/* Changes when this program writes other bytes for the same image and options. */
#define FORMAT "squashfs 1"

static int open_source(struct cached_image *cached, const struct registry_documents *documents)
{
	if (import_source_open(&cached->import, cached->uri, cached->architecture, cached->settings, documents))
		return -1;
	cached->import.cache = cached->cache;
	return 0;
}

int cached_image_begin(struct cached_image *cached, const char *uri, const char *architecture, const struct settings *settings)
{
	*cached = (struct cached_image){ .uri = uri, .architecture = architecture, .settings = settings,
				   .image = { .state = CACHE_UNUSABLE, .fd = -1, .lock = -1 } };
	cached->cache = cache_open(settings);
	cached->documents = (struct registry_documents){ cache_document_load, cache_document_keep, cached->cache };
	return open_source(cached, &cached->documents);
}

static void advance(void *context, unsigned long long done, unsigned long long total)
{
	struct cached_image *cached = context;

	if (cached->image.state == CACHE_DRAFT)
		cache_progress(&cached->image, done, total);
	layer_cache_use_progress(&cached->import.kept);
}

/* Its user's own place may have room yet: leave_cache. */
static bool is_handled_here(void *context, bool before)
{
	struct cached_image *cached = context;

	cached->exceeds_cache |= before && cached->image.state == CACHE_DRAFT;
	return cached->exceeds_cache || cache_is_full(&cached->image);
}

static int produce(struct cached_image *cached, int fd)
{
	struct squashfs_summary summary;
	struct produce_request *request = &cached->import.request;
	char bytes[32];

	if (import_source_resolve(&cached->import) || import_source_start(&cached->import))
		return -1;
	report_info("Importing %s: %u layers, %s", cached->uri, request->layers.n_layers, progress_bytes(request->total, bytes));
	request->advanced = advance;
	request->advanced_context = cached;
	request->failure_is_handled = is_handled_here;
	if (produce_squashfs(request, fd, &summary))
		return -1;
	cached->anonymous = import_source_keep(&cached->import) && !cached->identified;
	if (summary.lost)
		jail_one_line(summary.first);
	if (summary.lost)
		report_warning("squashfs has no place for %llu extended attributes, as of /%s", summary.lost, summary.first);
	return 0;
}

/* To be opened anew. What was asked already counts: the image's name is in its record. */
static void close_source(struct cached_image *cached)
{
	cached->identified |= cached->import.registry && registry_identified(cached->import.registry);
	import_source_close(&cached->import);
}

int cached_image_produce(struct cached_image *cached, int fd)
{
	int result = produce(cached, fd);

	/* A layer of the cache was not what its name says; it is out of the way now. */
	if (!result || !cached->import.kept.rejected)
		return result;
	close_source(cached);
	if (ftruncate(fd, 0) || lseek(fd, 0, SEEK_SET))
		return -report_error("%s: cannot begin again", cached->uri);
	return open_source(cached, &cached->documents) ? -1 : produce(cached, fd);
}

/* Whether others may have the image is known once the registry was asked; for a digest it was not, and its name alone may be
 * nobody's business. */
static int ask(struct cached_image *cached)
{
	if (!cached->import.parsed.digest[0])
		return 0;
	close_source(cached);
	cached->asking = cached->documents;
	cached->asking.load = NULL;
	return open_source(cached, &cached->asking) || import_source_resolve(&cached->import) ? -1 : 0;
}

/* What the reference stands for. Returns 0; 1: it is nothing for a cache; -1 after a message. */
static int find_digest(struct cached_image *cached, char digest[72])
{
	const char *platform = cached->import.registry ? registry_platform(cached->import.registry) : "";

	if (!cached->import.registry)
		return 1;
	if (settings_true(cached->settings, "ENROOT_CACHE_OFFLINE") && !cached->import.parsed.digest[0]) {
		if (cache_recall(cached->cache, cached->uri, platform, digest))
			return 0;
		return -report_error("%s: it was not imported before, and ENROOT_CACHE_OFFLINE forbids to ask the registry", cached->uri);
	}
	int result = import_source_digest(&cached->import, digest);
	if (!result)
		cache_remember(cached->cache, cached->uri, platform, digest);
	return result;
}

/* Its file system is full, or failed; that of the user's file need not be. Returns 1, or -1. */
static int leave_cache(struct cached_image *cached, const char *why)
{
	report_warning("%s: %s; once more without it", cached->uri, why);
	cache_release(&cached->image);
	close_source(cached);
	cached->exceeds_cache = false;
	if (open_source(cached, NULL))
		return -1;
	cached->import.cache = NULL;
	return 1;
}

int cached_image_get(struct cached_image *cached)
{
	const char *epoch = getenv("SOURCE_DATE_EPOCH");
	/* The URI is in /etc/rc. */
	const char *const options[] = { FORMAT, cached->uri, settings_get(cached->settings, "ENROOT_SQUASH_OPTIONS"),
					epoch ? epoch : "", NULL };
	struct jail_error err;
	char digest[72], platform[64], text[1400];
	int result = find_digest(cached, digest);

	if (result)
		return result;
	/* The registry is opened anew below. */
	snprintf(platform, sizeof(platform), "%s", registry_platform(cached->import.registry));
	struct cache_request request = { .reference = cached->uri, .digest = digest, .options = options, .platform = platform };
	cached->found = cache_find(cached->cache, &request, &cached->image);
	if (cached->found)
		return 0;
	cache_release(&cached->image);
	if (settings_true(cached->settings, "ENROOT_CACHE_OFFLINE"))
		return -report_error("%s: it is not in the cache, and ENROOT_CACHE_OFFLINE forbids to ask the registry", cached->uri);
	if (ask(cached))
		return -1;
	request.anonymous = !registry_identified(cached->import.registry);
	cache_acquire(cached->cache, &request, &cached->image);
	cached->found = cached->image.state == CACHE_FOUND;
	if (cached->found)
		return 0;
	if (cached->image.state != CACHE_DRAFT)
		return 1;
	if (cached_image_produce(cached, cached->image.fd))
		return cached->exceeds_cache || cache_is_full(&cached->image)
			       ? leave_cache(cached, "there is no room left in the cache") : -1;
	return cache_commit(&cached->image, cached->anonymous, &err)
		       ? leave_cache(cached, jail_error_format(&err, text, sizeof(text))) : 0;
}

void cached_image_end(struct cached_image *cached)
{
	cache_release(&cached->image);
	import_source_close(&cached->import);
	cache_close(cached->cache);
}
