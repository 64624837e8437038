/* SPDX-License-Identifier: Apache-2.0 */
/* Shows InfiniBand devices in the container as MELLANOX_VISIBLE_DEVICES asks. container/hooks.c calls it. */
#define _GNU_SOURCE
#include <dirent.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "native/base/scoped.h"
#include "native/container/fstab.h"
#include "native/base/report.h"
#include "hook.h"

#define CLASS "/sys/class/infiniband"
#define NODES "/dev/infiniband"
#define NODE_OPTIONS "x-create=file,bind,nosuid,noexec,nofail,silent"

/* What a program needs of rdma-core in its own version to talk to a newer driver. */
static const char *const libraries[] = { "libibverbs.so.1", "librdmacm.so.1", "libmlx5.so.1", "libmlx4.so.1" };

/* By number, mlx5_2 before mlx5_10. */
static int compare(const void *a, const void *b)
{
	return strverscmp(*(char *const *)a, *(char *const *)b);
}

static void list_folder(const char *folder, struct text_list *names)
{
	DIR *stream = opendir(folder);

	for (struct dirent *entry; stream && (entry = readdir(stream));)
		if (entry->d_name[0] != '.')
			text_list_add(names, entry->d_name);
	if (stream)
		closedir(stream);
	if (names->n)
		qsort(names->items, names->n, sizeof(names->items[0]), compare);
}

/* The adapter that a word of MELLANOX_VISIBLE_DEVICES means: its name, or its place among all, from 0. */
static const char *find(const struct text_list *adapters, const char *word)
{
	for (size_t i = 0; i < adapters->n; i++)
		if (!strcmp(adapters->items[i], word))
			return adapters->items[i];
	bool number = *word && !word[strspn(word, "0123456789")] && strlen(word) < 6;
	size_t place = number ? (size_t)atol(word) : adapters->n;
	return place < adapters->n ? adapters->items[place] : NULL;
}

/* Its files in /dev/infiniband: uverbsN, umadN, issmN. */
static int show_adapter(struct container *container, const char *adapter, struct jail_error *err)
{
	static const char *const kinds[] = { "infiniband_verbs", "infiniband_mad" };

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		scoped_free char *folder = text_format(CLASS "/%s/device/%s", adapter, kinds[i]);
		scoped_list nodes = { 0 };
		list_folder(folder, &nodes);
		for (size_t j = 0; j < nodes.n; j++) {
			scoped_free char *path = text_format(NODES "/%s", nodes.items[j]);
			scoped_free char *field = fstab_field(path);
			scoped_free char *line = text_format("%s %s none " NODE_OPTIONS "\n", field, field);
			if (hook_mount(container, line, err))
				return -1;
		}
	}
	return 0;
}

static int show_adapters(struct container *container, const char *wanted, struct jail_error *err)
{
	scoped_list adapters = { 0 };
	scoped_free char *copy = text_copy(wanted, strlen(wanted));

	list_folder(CLASS, &adapters);
	/* A directory of its own: of the host's, those that were not asked for are not to be seen. */
	if (hook_mount(container, "tmpfs " NODES " tmpfs x-create=dir,nosuid,nodev,noexec,mode=755\n", err) ||
	    hook_mount(container, NODES "/rdma_cm " NODES "/rdma_cm none " NODE_OPTIONS "\n", err))
		return -1;
	for (char *rest = copy, *word; (word = strsep(&rest, ","));) {
		const char *adapter = find(&adapters, word);
		if (!adapter)
			/* Images set the variable; most nodes have no such adapter. */
			report_warning("MELLANOX_VISIBLE_DEVICES: there is no adapter \"%s\" in " CLASS, word);
		else if (show_adapter(container, adapter, err))
			return -1;
	}
	return 0;
}

static int show_all(struct container *container, struct jail_error *err)
{
	return hook_mount(container, NODES " " NODES " none x-create=dir,bind,nosuid,noexec,nofail,silent\n", err);
}

static int bind_read_only(struct container *container, const char *path, struct jail_error *err)
{
	scoped_free char *field = fstab_field(path);
	scoped_free char *line = text_format("%s %s none x-create=auto,bind,ro,nosuid,nodev,nofail,silent\n", field, field);

	return hook_mount(container, line, err);
}

/* The host's libraries and their list of drivers (MELLANOX_MOUNT_DRIVER). */
static int mount_driver(struct container *container, struct jail_error *err)
{
	scoped_list folders = { 0 };
	glob_t found = { 0 };
	int result = bind_read_only(container, "/etc/libibverbs.d", err);

	glob("/usr/lib/*-linux-gnu/libibverbs", 0, NULL, &found);
	glob("/usr/lib64/libibverbs", GLOB_APPEND, NULL, &found);
	for (size_t i = 0; !result && i < found.gl_pathc; i++)
		result = bind_read_only(container, found.gl_pathv[i], err);
	for (size_t i = 0; !result && i < found.gl_pathc; i++) {
		scoped_free char *folder = text_copy(found.gl_pathv[i], strlen(found.gl_pathv[i]) - strlen("/libibverbs"));
		text_list_add(&folders, folder);
		for (size_t j = 0; !result && j < sizeof(libraries) / sizeof(libraries[0]); j++) {
			scoped_free char *path = text_format("%s/%s", folder, libraries[j]);
			result = bind_read_only(container, path, err);
		}
	}
	globfree(&found);
	return result ? -1 : hook_update_libraries(container, &folders, err);
}

int hook_mellanox(struct container *container, struct jail_error *err)
{
	const struct settings *settings = container->settings;
	const char *wanted = variables_get(&container->environment, "MELLANOX_VISIBLE_DEVICES");
	const char *driver = variables_get(&container->environment, "MELLANOX_MOUNT_DRIVER");
	bool minimal = settings_true(settings, "ENROOT_RESTRICT_DEV") || settings_true(settings, "ENROOT_UNSHARE_IPC");

	wanted = wanted ? wanted : settings_get(settings, "MELLANOX_VISIBLE_DEVICES");
	driver = driver ? driver : settings_get(settings, "MELLANOX_MOUNT_DRIVER");
	if (!*wanted || !strcmp(wanted, "void"))
		return 0;
	if (settings_means_yes(driver) && mount_driver(container, err))
		return -1;
	if (!strcmp(wanted, "none"))
		return 0;
	if (strcmp(wanted, "all"))
		return show_adapters(container, wanted, err);
	/* The host's /dev has them all. */
	return minimal ? show_all(container, err) : 0;
}
