/* SPDX-License-Identifier: Apache-2.0 */
/* Lists what is in the stores of the cache, and removes what was used least recently when there is no room. blob.c,
 * image.c and enroot/importing call it. */
#define _GNU_SOURCE
#include "trim.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "native/base/scoped.h"
#include "native/settings/number.h"
#include "draft.h"
#include "lock.h"

static void add_item(struct trim_list *list, const struct trim_item *item)
{
	if (list->n == list->capacity) {
		size_t capacity = list->capacity * 2 + 64;
		struct trim_item *larger = realloc(list->items, capacity * sizeof(*larger));
		if (!larger)
			return;
		list->items = larger;
		list->capacity = capacity;
	}
	list->items[list->n++] = *item;
	list->bytes += item->bytes;
}

/* Fills what the file tells. False: there is no such thing, any more. */
static bool look(const struct store *store, int folder, struct trim_item *item)
{
	scoped_fd entry = *item->kind == 'i' ? store_open_folder(store, folder, item->key) : -1;
	struct stat st;

	if (*item->kind == 'i' && entry < 0)
		return false;
	scoped_fd fd = entry >= 0 ? store_open_file(store, entry, DRAFT_IMAGE, &st)
				  : store_open_file(store, folder, item->key, &st);
	if (fd < 0)
		return errno == EPERM || entry >= 0; /* nothing of use: it may go */
	item->bytes = (long long)st.st_blocks * 512;
	item->in_use = lock_is_held(fd);
	/* When it got its name; the mtime of a layer is that of its last byte. */
	item->used = st.st_mtime;
	return true;
}

static void add_kind(struct trim_list *list, const struct store *store, const char *kind)
{
	int fd = store_open_folder(store, store->fd, kind);
	DIR *stream = fd < 0 ? NULL : fdopendir(fd);

	for (struct dirent *entry; stream && (entry = readdir(stream));) {
		struct trim_item item = { .store = store, .kind = kind };
		/* The owner may call files as he likes, and root sees the names. */
		if (strlen(entry->d_name) != 64 || strspn(entry->d_name, "0123456789abcdef") != 64)
			continue;
		memcpy(item.key, entry->d_name, sizeof(item.key));
		if (!look(store, fd, &item))
			continue;
		time_t used = store_used(store, item.key);
		if (used > item.used)
			item.used = used;
		add_item(list, &item);
	}
	if (stream)
		closedir(stream);
}

struct marks {
	struct trim_item *items;
	size_t n;
};

static bool add_marks(void *context, struct store *other)
{
	struct marks *marks = context;

	for (size_t i = 0; i < marks->n; i++) {
		time_t used = store_used(other, marks->items[i].key);
		if (used > marks->items[i].used)
			marks->items[i].used = used;
	}
	return true;
}

void trim_list_add(struct trim_list *list, const struct store *store, int users)
{
	size_t before = list->n;

	add_kind(list, store, "images");
	add_kind(list, store, "blobs");
	if (!store->shared || users < 0 || list->n == before)
		return;
	struct marks marks = { list->items + before, list->n - before };
	store_each(users, "", UINT_MAX, add_marks, &marks);
}

void trim_list_free(struct trim_list *list)
{
	free(list->items);
	*list = (struct trim_list){ 0 };
}

static int older_first(const void *a, const void *b)
{
	const struct trim_item *one = a, *other = b;

	if (one->used != other->used)
		return one->used < other->used ? -1 : 1;
	/* Layers go first: an image makes them superfluous, not they it. */
	return strcmp(one->kind, other->kind);
}

long long trim_down(struct trim_list *list, long long most, time_t since, bool force)
{
	long long freed = 0;

	if (list->n)
		qsort(list->items, list->n, sizeof(list->items[0]), older_first);
	for (size_t i = 0; i < list->n; i++) {
		struct trim_item *item = &list->items[i];
		if (list->bytes <= most && item->used >= since)
			continue;
		if (item->in_use && !force)
			continue;
		if (draft_remove(item->store, item->kind, item->key, force) <= 0)
			continue;
		freed += item->bytes;
		list->bytes -= item->bytes;
	}
	return freed;
}

/* How much the store may hold, `used` bytes being in it. */
static long long quota(const struct cache *cache, const struct store *store, long long used, const char **which)
{
	const char *text = settings_get(cache->settings, "ENROOT_CACHE_MAX_SIZE");
	long long most = LLONG_MAX, fixed = *text ? number_size(text) : 0;
	long share = settings_number(cache->settings, "ENROOT_CACHE_MAX_SHARE", 50);
	struct statvfs fs;

	*which = "ENROOT_CACHE_MAX_SHARE";
	if (!fstatvfs(store->fd, &fs) && share < 100)
		most = ((long long)fs.f_bavail * (long long)fs.f_frsize + used) / 100 * share;
	if (fixed > 0 && fixed < most) {
		most = fixed;
		*which = "ENROOT_CACHE_MAX_SIZE";
	}
	return most;
}

int trim_make_room(const struct cache *cache, const struct store *store, long long bytes, struct jail_error *err)
{
	scoped_trim_list list = { 0 };
	const char *which;

	/* What is being added lies on the disk already, but is no entry yet. */
	trim_list_add(&list, store, cache->users);
	long long most = quota(cache, store, list.bytes + bytes, &which);
	if (list.bytes + bytes <= most)
		return 0;
	if (bytes <= most)
		trim_down(&list, most - bytes, 0, false);
	if (list.bytes + bytes <= most)
		return 0;
	return jail_fail(err, NULL, ENOSPC, "the cache %s does not keep this image of %lld MB: %s allows %lld MB, and %lld MB in it "
			 "are in use", store->path, bytes >> 20, which, most >> 20, list.bytes >> 20);
}
