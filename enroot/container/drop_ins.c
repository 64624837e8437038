/* SPDX-License-Identifier: Apache-2.0 */
/* Lists the configuration files in environ.d, mounts.d and hooks.d, the administrator's before the user's.
 * environment.c, hooks.c and mounts.c call it, and read and apply them. */
#define _GNU_SOURCE
#include "drop_ins.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "native/base/scoped.h"

static void add_folder(struct drop_ins *files, const char *top, const char *folder, const char *suffix, bool executable)
{
	scoped_free char *path = text_format("%s/%s", top, folder);
	DIR *stream = opendir(path);
	scoped_list found = { 0 };

	for (struct dirent *entry; stream && (entry = readdir(stream));)
		if (entry->d_name[0] != '.' && text_ends(entry->d_name, suffix))
			text_list_add(&found, entry->d_name);
	if (stream)
		closedir(stream);
	text_list_sort(&found);
	for (size_t i = 0; i < found.n; i++) {
		struct stat st;
		char *file = text_format("%s/%s", path, found.items[i]);
		text_list_add(&files->names, found.items[i]);
		/* A link to /dev/null, or a file that may not be run, only takes the place of what is built in. */
		if (!stat(file, &st) && S_ISREG(st.st_mode) && !access(file, executable ? X_OK : R_OK))
			text_list_take(&files->paths, file);
		else
			free(file);
	}
}

void drop_ins_find(struct drop_ins *files, const struct settings *settings, const char *folder, const char *suffix,
		   bool executable)
{
	*files = (struct drop_ins){ 0 };
	add_folder(files, settings_get(settings, "ENROOT_SYSCONF_PATH"), folder, suffix, executable);
	add_folder(files, settings_get(settings, "ENROOT_CONFIG_PATH"), folder, suffix, executable);
}

bool drop_ins_replace(const struct drop_ins *files, const char *name)
{
	for (size_t i = 0; i < files->names.n; i++) {
		const char *rest = files->names.items[i];
		size_t digits = strspn(rest, "0123456789");
		if (digits && rest[digits] == '-')
			rest += digits + 1;
		if (!strcmp(rest, name))
			return true;
	}
	return false;
}

void drop_ins_free(struct drop_ins *files)
{
	text_list_free(&files->paths);
	text_list_free(&files->names);
}
