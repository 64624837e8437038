/* SPDX-License-Identifier: Apache-2.0 */
/* Implements `enroot export`: makes an image of a container root with mksquashfs. main.c calls it. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "native/base/scoped.h"
#include "native/container/namespaces.h"
#include "native/base/program.h"
#include "native/base/report.h"
#include "command.h"
#include "options.h"
#include "native/base/atomic_file.h"

/* Places to mount on that a start left behind: empty, and of a mode that nobody else gives. */
#define LEFT_OUT "exclude@type(f) && filesize(0) && perm(0000)"

/* Runs in the child. As root of a user namespace one may read what is one's own, whatever its mode: /etc/shadow of Fedora
 * and its kin has 0000, and mksquashfs would pack an empty file in its place, and no directory of that mode at all. */
static bool be_root(void)
{
	struct jail_error refused;

	return !geteuid() || !namespaces_make_user(0, 0, &refused);
}

static int pack(const char *root, const struct atomic_file *output, const struct settings *settings, struct jail_error *err)
{
	static const char *const fixed[] = { "-noappend", "-all-root", "-quiet", "-action", LEFT_OUT };
	static const char *const without[] = { "-wildcards", "-e", "dev/*", ".enroot", ".lock" };
	const char *squash = settings_get(settings, "ENROOT_SQUASH_OPTIONS");
	scoped_free char *options = text_copy(squash, strlen(squash));
	scoped_list arguments = { 0 };

	text_list_add(&arguments, "mksquashfs");
	text_list_add(&arguments, root);
	/* Its own descriptor: in another namespace it may not look at this process's. */
	fcntl(output->fd, F_SETFD, 0);
	text_list_take(&arguments, text_format("/proc/self/fd/%d", output->fd));
	for (size_t i = 0; i < sizeof(fixed) / sizeof(fixed[0]); i++)
		text_list_add(&arguments, fixed[i]);
	if (!report_is_terminal())
		text_list_add(&arguments, "-no-progress");
	text_list_add(&arguments, "-processors");
	text_list_take(&arguments, text_format("%ld", settings_number(settings, "ENROOT_MAX_PROCESSORS", 1)));
	for (char *rest = options, *word; (word = strsep(&rest, " \t"));)
		if (*word)
			text_list_add(&arguments, word);
	/* Last: all words behind -e are names. */
	for (size_t i = 0; i < sizeof(without) / sizeof(without[0]); i++)
		text_list_add(&arguments, without[i]);
	struct program program = { .arguments = arguments.items, .quiet = true, .prepare = be_root };
	int status = program_run(&program, err);
	/* Where there are no user namespaces: as the user. */
	if (status == PROGRAM_NOT_PREPARED) {
		program.prepare = NULL;
		status = program_run(&program, err);
	}
	if (status <= 0)
		return status;
	return jail_fail(err, NULL, 0, "mksquashfs ended with status %d (its message is above): no room left, or an option of "
			 "ENROOT_SQUASH_OPTIONS that it does not know", status);
}

static int export(const struct settings *settings, const char *name, const char *file, bool force)
{
	scoped_free char *root = command_root(settings, name);
	struct atomic_file output;
	struct jail_error err;
	struct stat st;

	if (!root)
		return 1;
	if (stat(root, &st) || !S_ISDIR(st.st_mode))
		return report_error("there is no container \"%s\" in %s; see: enroot list", name,
				    settings_get(settings, "ENROOT_DATA_PATH"));
	int result = atomic_file_open(&output, file, force, &err) || pack(root, &output, settings, &err) ||
		     atomic_file_commit(&output, 0666, &err) ? -1 : 0;
	atomic_file_close(&output);
	return result ? report_failure(&err) : 0;
}

int command_export(int argc, char **argv)
{
	struct settings settings;
	const char *given = NULL, *name;
	bool force = false;
	const struct command_option options[] = { { .name = "output", .letter = 'o', .value = &given },
						  { .name = "force", .letter = 'f', .flag = &force }, { .name = NULL } };
	int status = command_begin(argc, argv, options, "it takes the name of one container", &name, &settings);

	if (status >= 0)
		return status;
	force = force || settings_true(&settings, "ENROOT_FORCE_OVERRIDE");
	scoped_free char *file = given ? text_copy(given, strlen(given)) : text_format("%s.sqsh", name);
	return export(&settings, name, file, force);
}
