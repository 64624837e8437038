/* SPDX-License-Identifier: Apache-2.0 */
/* Opens all stores of the image cache that a process reads: the user's own, root's, and those of the users that the
 * setting ENROOT_SHARED_CACHE_TRUST names. Each is opened by store.c. Files of this folder call it. */
#define _GNU_SOURCE
#include "all_stores.h"

#include <errno.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "native/base/scoped.h"
#include "native/base/report.h"
#include "draft.h"

static void warn_unusable(const struct jail_error *err)
{
	char text[1400];

	report_warning("%s; going on without this cache", jail_error_format(err, text, sizeof(text)));
}

static void add_personal(struct cache *cache)
{
	struct store *store = &cache->stores[cache->n];
	struct jail_error err;

	if (store_open_personal(store, cache->settings, &err)) {
		warn_unusable(&err);
		store_close(store);
		return;
	}
	cache->personal = store;
	cache->n++;
}

static void add_shared(struct cache *cache, uid_t owner)
{
	struct store *store = &cache->stores[cache->n];
	bool own = owner == geteuid();
	struct jail_error err;

	for (unsigned i = 0; i < cache->n; i++)
		if (cache->stores[i].shared && cache->stores[i].owner == owner)
			return;
	if (store_open_shared(store, cache->users, cache->root, owner, own, &err)) {
		/* Nobody need have one; an administrator may let only some write. */
		if (err.number != ENOENT && err.number != EACCES && err.number != EROFS)
			warn_unusable(&err);
		store_close(store);
		return;
	}
	if (own)
		cache->shared = store;
	cache->n++;
}

static bool find_user(const char *name, uid_t *uid)
{
	char *end;
	unsigned long number = strtoul(name, &end, 10);
	const struct passwd *account;

	if (!*end && *name >= '0' && *name <= '9' && number < (uid_t)-1) {
		*uid = (uid_t)number;
		return true;
	}
	account = getpwnam(name);
	if (account)
		*uid = account->pw_uid;
	return account != NULL;
}

static void add_trusted(struct cache *cache)
{
	const char *list = settings_get(cache->settings, "ENROOT_SHARED_CACHE_TRUST");
	scoped_free char *copy = text_copy(list, strlen(list));
	char *rest = copy, *name;
	uid_t uid;

	cache->trusted_by_others = !geteuid();
	add_shared(cache, 0);
	while ((name = strsep(&rest, ", \t"))) {
		if (!*name)
			continue;
		if (!find_user(name, &uid)) {
			report_warning("ENROOT_SHARED_CACHE_TRUST: there is no user \"%.64s\"", name);
			continue;
		}
		cache->trusted_by_others = cache->trusted_by_others || uid == geteuid();
		if (cache->n < sizeof(cache->stores) / sizeof(cache->stores[0]))
			add_shared(cache, uid);
	}
}

struct cache *cache_open(const struct settings *settings)
{
	struct cache *cache = calloc(1, sizeof(*cache));
	struct jail_error err;

	if (!cache) {
		report_error("no memory");
		exit(1);
	}
	*cache = (struct cache){ .settings = settings, .users = -1, .locks = -1, .mask = umask(0) };
	umask(cache->mask);
	add_personal(cache);
	const char *root = settings_get(settings, "ENROOT_SHARED_CACHE_PATH");
	if (*root) {
		cache->root = text_copy(root, strlen(root));
		cache->users = store_open_users(root, &cache->locks, &err);
		if (cache->users < 0)
			warn_unusable(&err);
	}
	if (cache->users >= 0) {
		add_shared(cache, geteuid());
		add_trusted(cache);
	}
	draft_sweep_locks(cache->locks);
	for (unsigned i = 0; i < cache->n; i++)
		if (cache->stores[i].own)
			draft_sweep(&cache->stores[i]);
	return cache;
}

void cache_close(struct cache *cache)
{
	if (!cache)
		return;
	for (unsigned i = 0; i < cache->n; i++)
		store_close(&cache->stores[i]);
	jail_close(&cache->users);
	jail_close(&cache->locks);
	free(cache->root);
	free(cache);
}

const struct store *cache_writable(const struct cache *cache, bool anonymous)
{
	if (cache->shared && (anonymous || settings_true(cache->settings, "ENROOT_SHARED_CACHE_PRIVATE")))
		return cache->shared;
	return cache->personal;
}
