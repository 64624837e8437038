/* SPDX-License-Identifier: Apache-2.0 */
/* Implements `enroot cache prune`, which deletes images and layers, and `enroot cache verify`, which compares them
 * with their digests. cache_command.c calls it. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "native/base/scoped.h"
#include "native/base/report.h"
#include "cache_command.h"
#include "native/cache/content_digest.h"
#include "native/cache/draft.h"
#include "native/cache/entry.h"

static int no_directory(void)
{
	return report_error("there is no administrator's directory (ENROOT_SHARED_CACHE_PATH) with other users' stores");
}

/* What is there now. */
static long long count(const struct cache_view *view)
{
	scoped_trim_list list = { 0 };

	for (unsigned i = 0; i < view->cache->n; i++)
		if (view->cache->stores[i].own)
			trim_list_add(&list, &view->cache->stores[i], -1);
	for (unsigned i = 0; i < view->n_others; i++)
		trim_list_add(&list, &view->others[i], -1);
	return list.bytes;
}

/* Down to the quota, each store by itself. */
static void make_room(const struct cache_view *view)
{
	struct jail_error err;

	for (unsigned i = 0; i < view->cache->n; i++)
		if (view->cache->stores[i].own && trim_make_room(view->cache, &view->cache->stores[i], 0, &err))
			report_warning("%s", err.message);
	for (unsigned i = 0; i < view->n_others; i++)
		if (trim_make_room(view->cache, &view->others[i], 0, &err))
			report_warning("%s", err.message);
}

int cache_prune(const struct settings *settings, const struct cache_choice *choice)
{
	scoped_view view = { .cache = cache_open(settings) };

	if (!cache_visible(&view, choice->all_users))
		return no_directory();
	if (choice->all_users && geteuid())
		return report_error("only root can remove what belongs to others");
	long long before = view.list.bytes;
	if (choice->all)
		trim_down(&view.list, 0, LONG_MAX, choice->force);
	else if (choice->older >= 0)
		trim_down(&view.list, LLONG_MAX, time(NULL) - (time_t)choice->older, choice->force);
	else if (choice->to_size >= 0)
		trim_down(&view.list, choice->to_size, 0, choice->force);
	else
		make_room(&view);
	long long after = count(&view);
	report_info("freed %lld MB, %lld MB are left", (before - after) >> 20, after >> 20);
	return 0;
}

static int hollow(struct jail_error *err)
{
	jail_fail(err, NULL, 0, "it is made of holes, and is not read; its owner did not get it from an import");
	return 1;
}

/* 0: as it should be; 1: damaged, and `err` says how. */
static int check(const struct settings *settings, const struct trim_item *item, struct jail_error *err)
{
	long threads = settings_number(settings, "ENROOT_MAX_PROCESSORS", 1);
	scoped_record record = { 0 };
	struct stat st;
	char digits[65];

	if (*item->kind == 'i') {
		scoped_fd fd = entry_open(item->store, item->key, &record, err);
		if (fd < 0)
			return err->number == ENOENT ? 0 : 1;
		if (fstat(fd, &st) || store_is_hollow(&st))
			return hollow(err);
		if (content_digest(fd, record.size, threads > 0 ? (unsigned)threads : 1, digits, err))
			return 1;
		if (!strcmp(digits, record.content))
			return 0;
	} else {
		scoped_fd blobs = store_open_folder(item->store, item->store->fd, "blobs");
		scoped_fd fd = blobs < 0 ? -1 : store_open_file(item->store, blobs, item->key, &st);
		if (fd < 0)
			return errno == ENOENT ? 0 : (jail_fail(err, "open", errno, "cannot read it"), 1);
		if (store_is_hollow(&st))
			return hollow(err);
		if (content_sha256(fd, (unsigned long long)st.st_size, digits, err))
			return 1;
		if (!strcmp(digits, item->key))
			return 0;
	}
	jail_fail(err, NULL, 0, "its content is not what was recorded");
	return 1;
}

int cache_verify(const struct settings *settings, const struct cache_choice *choice)
{
	scoped_view view = { .cache = cache_open(settings) };
	unsigned damaged = 0, removed = 0;

	if (!cache_visible(&view, choice->all_users))
		return no_directory();
	for (size_t i = 0; i < view.list.n; i++) {
		const struct trim_item *item = &view.list.items[i];
		struct jail_error err;
		if (!check(settings, item, &err))
			continue;
		damaged++;
		report_warning("%s/%s/%s: %s", item->store->path, item->kind, item->key, err.message);
		if (choice->repair && draft_remove(item->store, item->kind, item->key, true) > 0)
			removed++;
	}
	if (!damaged) {
		report_info("%zu entries of %lld MB are as they should be", view.list.n, view.list.bytes >> 20);
		return 0;
	}
	if (removed == damaged) {
		report_info("removed %u damaged entries of %zu; the next import makes them anew", removed, view.list.n);
		return 0;
	}
	return report_error("%u of %zu entries are damaged%s", damaged - removed, view.list.n,
			    choice->repair ? " and cannot be removed" : "; remove them: enroot cache verify --repair");
}
