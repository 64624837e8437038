/* SPDX-License-Identifier: Apache-2.0 */
/* Implements `enroot remove`: asks for confirmation, and deletes container roots. main.c calls it. */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "native/base/scoped.h"
#include "native/base/report.h"
#include "command.h"
#include "options.h"
#include "staging.h"

static bool agreed(const char *root)
{
	char answer[16];

	fprintf(stderr, "Delete the root filesystem %s? [y/N] ", root);
	return fgets(answer, sizeof(answer), stdin) && (answer[0] == 'y' || answer[0] == 'Y');
}

static int remove_one(const struct settings *settings, int data, const char *name, bool force)
{
	scoped_free char *root = command_root(settings, name);
	struct jail_error err;
	struct stat st;

	if (!root)
		return 1;
	if (lstat(root, &st) || !S_ISDIR(st.st_mode))
		return report_error("there is no container \"%s\" in %s; see: enroot list", name,
				    settings_get(settings, "ENROOT_DATA_PATH"));
	if (!force && !agreed(root))
		return 0;
	return staging_remove(data, name, &err) ? report_failure(&err) : 0;
}

/* Whether the root's lock, in which pyxis writes whose it is, says nothing or what `mark` wants. */
static bool is_marked(int data, const char *name, const char *mark)
{
	struct jail_error ignored;
	scoped_free char *path = text_format("%s/.lock", name);
	/* A container can write there, and nobody must wait for the other end of a FIFO. */
	scoped_fd fd = mark ? text_open_plain(data, path, O_RDONLY) : -1;
	scoped_free char *text = fd < 0 ? NULL : text_read_open(fd, path, 4096, NULL, &ignored);

	if (!text || !*text)
		return true;
	text[strcspn(text, "\n")] = '\0';
	return !fnmatch(mark, text, 0);
}

/* All whose names match, and hidden files of such names; that there is none is no error. */
static int remove_matching(int data, const char *pattern, const char *mark)
{
	int copy = dup(data), status = 0;
	DIR *stream = copy < 0 ? NULL : fdopendir(copy);
	scoped_list names = { 0 };
	struct jail_error err;
	struct stat st;

	for (struct dirent *entry; stream && (entry = readdir(stream));)
		if (!fnmatch(pattern, entry->d_name + (entry->d_name[0] == '.'), 0))
			text_list_add(&names, entry->d_name);
	if (stream)
		closedir(stream);
	for (size_t i = 0; i < names.n; i++) {
		if (fstatat(data, names.items[i], &st, AT_SYMLINK_NOFOLLOW))
			continue;
		if (!S_ISDIR(st.st_mode))
			(void)unlinkat(data, names.items[i], 0);
		else if (names.items[i][0] != '.' && is_marked(data, names.items[i], mark) &&
			 staging_remove(data, names.items[i], &err))
			status |= report_failure(&err);
	}
	return status;
}

int command_remove(int argc, char **argv)
{
	const char *pattern = NULL, *mark = NULL;
	struct settings settings;
	struct jail_error err;
	bool force = false;
	const struct command_option options[] = { { .name = "force", .letter = 'f', .flag = &force },
						  { .name = "match", .value = &pattern }, { .name = "mark", .value = &mark },
						  { .name = NULL } };
	int first, status = command_options(argc, argv, options, OPTIONS_ANYWHERE, &first);

	if (status >= 0)
		return status;
	if (first == argc && !pattern)
		return command_usage("remove", "it takes the names of containers");
	if (command_settings(&settings, NULL))
		return 1;
	force = force || settings_true(&settings, "ENROOT_FORCE_OVERRIDE");
	if (pattern && !force)
		return command_usage("remove", "--match asks nothing, and needs --force");
	scoped_fd data = staging_data(&settings, &err);
	if (data < 0)
		return report_failure(&err);
	status = pattern ? remove_matching(data, pattern, mark) : 0;
	for (; first < argc; first++)
		status |= remove_one(&settings, data, argv[first], force);
	return status;
}
