/* SPDX-License-Identifier: Apache-2.0 */
/* Finds an image in the cache, or makes it and keeps it there. get.c and import.c call it. */
#define _GNU_SOURCE
#include "cached_image.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "native/base/report.h"
#include "progress.h"

/* Changes when this program writes other bytes for the same image and options. */
#define FORMAT "squashfs 1"

static int open_origin(struct obtain *obtain, const struct registry_documents *documents)
{
	if (origin_open(&obtain->origin, obtain->uri, obtain->architecture, obtain->settings, documents))
		return -1;
	obtain->origin.cache = obtain->cache;
	return 0;
}

int obtain_begin(struct obtain *obtain, const char *uri, const char *architecture, const struct settings *settings)
{
	*obtain = (struct obtain){ .uri = uri, .architecture = architecture, .settings = settings,
				   .image = { .state = CACHE_UNUSABLE, .fd = -1, .lock = -1 } };
	obtain->cache = cache_open(settings);
	obtain->documents = (struct registry_documents){ cache_document_load, cache_document_keep, obtain->cache };
	return open_origin(obtain, &obtain->documents);
}

static void advance(void *context, unsigned long long done, unsigned long long total)
{
	struct obtain *obtain = context;

	if (obtain->image.state == CACHE_DRAFT)
		cache_progress(&obtain->image, done, total);
	kept_layers_progress(&obtain->origin.kept);
}

/* Its user's own place may have room yet: leave_cache. */
static bool is_excused(void *context, bool before)
{
	struct obtain *obtain = context;

	obtain->outgrown |= before && obtain->image.state == CACHE_DRAFT;
	return obtain->outgrown || cache_is_full(&obtain->image);
}

static int produce(struct obtain *obtain, int fd)
{
	struct squashfs_summary summary;
	struct produce_request *request = &obtain->origin.request;
	char bytes[32];

	if (origin_resolve(&obtain->origin) || origin_start(&obtain->origin))
		return -1;
	report_info("Importing %s: %u layers, %s", obtain->uri, request->layers.n_layers, progress_bytes(request->total, bytes));
	request->advanced = advance;
	request->advanced_context = obtain;
	request->excused = is_excused;
	if (produce_squashfs(request, fd, &summary))
		return -1;
	obtain->anonymous = origin_keep(&obtain->origin) && !obtain->identified;
	if (summary.lost)
		jail_one_line(summary.first);
	if (summary.lost)
		report_warning("squashfs has no place for %llu extended attributes, as of /%s", summary.lost, summary.first);
	return 0;
}

/* To be opened anew. What was asked already counts: the image's name is in its record. */
static void close_origin(struct obtain *obtain)
{
	obtain->identified |= obtain->origin.registry && registry_identified(obtain->origin.registry);
	origin_close(&obtain->origin);
}

int obtain_produce(struct obtain *obtain, int fd)
{
	int result = produce(obtain, fd);

	/* A layer of the cache was not what its name says; it is out of the way now. */
	if (!result || !obtain->origin.kept.rejected)
		return result;
	close_origin(obtain);
	if (ftruncate(fd, 0) || lseek(fd, 0, SEEK_SET))
		return -report_error("%s: cannot begin again", obtain->uri);
	return open_origin(obtain, &obtain->documents) ? -1 : produce(obtain, fd);
}

/* Whether others may have the image is known once the registry was asked; for a digest it was not, and its name alone may be
 * nobody's business. */
static int ask(struct obtain *obtain)
{
	if (!obtain->origin.parsed.digest[0])
		return 0;
	close_origin(obtain);
	obtain->asking = obtain->documents;
	obtain->asking.load = NULL;
	return open_origin(obtain, &obtain->asking) || origin_resolve(&obtain->origin) ? -1 : 0;
}

/* What the reference stands for. Returns 0; 1: it is nothing for a cache; -1 after a message. */
static int find_digest(struct obtain *obtain, char digest[72])
{
	const char *platform = obtain->origin.registry ? registry_platform(obtain->origin.registry) : "";

	if (!obtain->origin.registry)
		return 1;
	if (settings_true(obtain->settings, "ENROOT_CACHE_OFFLINE") && !obtain->origin.parsed.digest[0]) {
		if (cache_recall(obtain->cache, obtain->uri, platform, digest))
			return 0;
		return -report_error("%s: it was not imported before, and ENROOT_CACHE_OFFLINE forbids to ask the registry", obtain->uri);
	}
	int result = origin_digest(&obtain->origin, digest);
	if (!result)
		cache_remember(obtain->cache, obtain->uri, platform, digest);
	return result;
}

/* Its file system is full, or failed; that of the user's file need not be. Returns 1, or -1. */
static int leave_cache(struct obtain *obtain, const char *why)
{
	report_warning("%s: %s; once more without it", obtain->uri, why);
	cache_release(&obtain->image);
	close_origin(obtain);
	obtain->outgrown = false;
	if (open_origin(obtain, NULL))
		return -1;
	obtain->origin.cache = NULL;
	return 1;
}

int obtain_image(struct obtain *obtain)
{
	const char *epoch = getenv("SOURCE_DATE_EPOCH");
	/* The URI is in /etc/rc. */
	const char *const options[] = { FORMAT, obtain->uri, settings_get(obtain->settings, "ENROOT_SQUASH_OPTIONS"),
					epoch ? epoch : "", NULL };
	struct jail_error err;
	char digest[72], platform[64], text[1400];
	int result = find_digest(obtain, digest);

	if (result)
		return result;
	/* The registry is opened anew below. */
	snprintf(platform, sizeof(platform), "%s", registry_platform(obtain->origin.registry));
	struct cache_request request = { .reference = obtain->uri, .digest = digest, .options = options, .platform = platform };
	obtain->found = cache_find(obtain->cache, &request, &obtain->image);
	if (obtain->found)
		return 0;
	cache_release(&obtain->image);
	if (settings_true(obtain->settings, "ENROOT_CACHE_OFFLINE"))
		return -report_error("%s: it is not in the cache, and ENROOT_CACHE_OFFLINE forbids to ask the registry", obtain->uri);
	if (ask(obtain))
		return -1;
	request.anonymous = !registry_identified(obtain->origin.registry);
	cache_acquire(obtain->cache, &request, &obtain->image);
	obtain->found = obtain->image.state == CACHE_FOUND;
	if (obtain->found)
		return 0;
	if (obtain->image.state != CACHE_DRAFT)
		return 1;
	if (obtain_produce(obtain, obtain->image.fd))
		return obtain->outgrown || cache_is_full(&obtain->image)
			       ? leave_cache(obtain, "there is no room left in the cache") : -1;
	return cache_commit(&obtain->image, obtain->anonymous, &err) ? leave_cache(obtain, jail_error_format(&err, text, sizeof(text))) : 0;
}

void obtain_end(struct obtain *obtain)
{
	cache_release(&obtain->image);
	origin_close(&obtain->origin);
	cache_close(obtain->cache);
}
