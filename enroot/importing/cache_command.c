/* SPDX-License-Identifier: Apache-2.0 */
/* Implements `enroot cache`: parses its options, and does `init` itself. main.c calls it. cache_ls.c does ls,
 * cache_prune.c does prune and verify, cache_get.c does get. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "native/base/scoped.h"
#include "enroot/command/command.h"
#include "enroot/command/options.h"
#include "native/settings/number.h"
#include "native/base/report.h"
#include "cache_command.h"
#include "commands.h"

bool cache_visible(struct cache_view *view, bool all_users)
{
	struct cache *cache = view->cache;

	view->all_users = all_users;
	for (unsigned i = 0; i < cache->n; i++)
		if (cache->stores[i].own)
			trim_list_add(&view->list, &cache->stores[i], cache->users);
	if (!all_users)
		return true;
	if (cache->users < 0)
		return false;
	view->others = calloc(MOST_OWNERS, sizeof(*view->others));
	if (view->others)
		store_each(cache->users, cache->root, MOST_OWNERS, cache_view_add, view);
	return true;
}

bool cache_view_add(void *context, struct store *store)
{
	struct cache_view *view = context;

	for (unsigned i = 0; i < view->cache->n; i++)
		if (view->cache->stores[i].own && view->cache->stores[i].shared && view->cache->stores[i].owner == store->owner)
			return true;
	/* The list refers to it: it is kept open until the end. */
	struct store *kept = &view->others[view->n_others++];
	*kept = *store;
	kept->path = text_copy(store->path, strlen(store->path));
	kept->fd = fcntl(store->fd, F_DUPFD_CLOEXEC, 3);
	trim_list_add(&view->list, kept, view->cache->users);
	return view->n_others < MOST_OWNERS;
}

void cache_view_free(struct cache_view *view)
{
	trim_list_free(&view->list);
	for (unsigned i = 0; i < view->n_others; i++)
		store_close(&view->others[i]);
	free(view->others);
	cache_close(view->cache);
}

/* "90m", "12h", "30d", "45": seconds. -1: it is none. */
static long long age(const char *text)
{
	char *end;
	long long number = strtoll(text, &end, 10);
	static const struct { char unit; long long seconds; } units[] = { { 's', 1 }, { 'm', 60 }, { 'h', 3600 },
									   { 'd', 86400 }, { 'w', 604800 } };

	if (end == text || number < 0 || number > 1000000)
		return -1;
	if (!*end)
		return number;
	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++)
		if (*end == units[i].unit && !end[1])
			return number * units[i].seconds;
	return -1;
}

/* A directory of root's with exactly this mode, whatever the umask. */
static int make(int parent, const char *name, mode_t mode)
{
	if (mkdirat(parent, name, 0700) && errno != EEXIST)
		return -1;
	scoped_fd fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return fd < 0 || fchown(fd, 0, 0) || fchmod(fd, mode) ? -1 : 0;
}

static int init(const char *path)
{
	if (!*path)
		return command_usage("cache", "init takes a directory, or the setting ENROOT_SHARED_CACHE_PATH");
	if (geteuid())
		return report_error("only root can make a cache that users need not trust each other for");
	if (make(AT_FDCWD, path, 0755))
		return report_error("%s: cannot make it: %s", path, strerrordesc_np(errno));
	scoped_fd root = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	/* Root's own at once: whoever made that first could deny it. */
	if (root < 0 || make(root, "users", 01777) || make(root, "users/0", 0755) || make(root, "locks", 01777))
		return report_error("%s: cannot make what belongs into it: %s", path, strerrordesc_np(errno));
	report_info("%s is ready; put this into enroot.conf of all nodes: ENROOT_SHARED_CACHE_PATH %s", path, path);
	return 0;
}

/* Which options go with which command, by the first letter of each; "u" is --all-users. */
static const struct {
	const char *name, *options;
	int (*run)(const struct settings *, const struct cache_choice *);
} cache_commands[] = {
	{ "ls", "ju", cache_ls }, { "prune", "aosfu", cache_prune }, { "verify", "ru", cache_verify }, { "init", "", NULL },
};

/* Whether those that were given go with `allowed`, and with each other. */
static bool fits(const struct cache_choice *choice, const char *allowed)
{
	const struct { char letter; bool given; } options[] = {
		{ 'a', choice->all },	 { 'o', choice->older >= 0 }, { 's', choice->to_size >= 0 }, { 'f', choice->force },
		{ 'r', choice->repair }, { 'j', choice->json },	      { 'u', choice->all_users },
	};

	for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++)
		if (options[i].given && !strchr(allowed, options[i].letter))
			return false;
	return choice->all + (choice->older >= 0) + (choice->to_size >= 0) <= 1;
}

int cache_command(int argc, char **argv)
{
	struct cache_choice choice = { .to_size = -1, .older = -1 };
	const char *older = NULL, *to_size = NULL;
	const struct command_option options[] = {
		{ .name = "all", .flag = &choice.all },	      { .name = "older", .value = &older },
		{ .name = "to-size", .value = &to_size },     { .name = "force", .flag = &choice.force },
		{ .name = "repair", .flag = &choice.repair }, { .name = "json", .flag = &choice.json },
		{ .name = "all-users", .flag = &choice.all_users }, { .name = NULL },
	};
	struct settings settings;
	struct jail_error err;
	size_t i = 0;
	int first, status = command_options(argc, argv, options, OPTIONS_ANYWHERE, &first);

	if (status >= 0)
		return status;
	if (older && (choice.older = age(older)) < 0)
		return command_usage("cache", "an age is a number and s, m, h, d or w, not %.64s", older);
	if (to_size && (choice.to_size = number_size(to_size)) < 0)
		return command_usage("cache", "a size is a number and K, M, G or T, not %.64s", to_size);
	const char *name = argv[first] ? argv[first] : "";
	while (i < sizeof(cache_commands) / sizeof(cache_commands[0]) && strcmp(cache_commands[i].name, name))
		i++;
	if (i == sizeof(cache_commands) / sizeof(cache_commands[0]))
		return command_usage("cache", "it takes one of ls, prune, verify, get, init");
	if (!fits(&choice, cache_commands[i].options))
		return command_usage("cache", "these options do not go together with %s", name);
	if (argc - first > (cache_commands[i].run ? 1 : 2))
		return command_usage("cache", "too many arguments for %s", name);
	if (settings_load(&settings, NULL, &err))
		return report_failure(&err);
	status = cache_commands[i].run ? cache_commands[i].run(&settings, &choice)
				 : init(argc - first > 1 ? argv[first + 1] : settings_get(&settings, "ENROOT_SHARED_CACHE_PATH"));
	settings_free(&settings);
	return status;
}
