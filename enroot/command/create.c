/* SPDX-License-Identifier: Apache-2.0 */
/* Implements `enroot create`: unpacks an image into a new container root. main.c calls it. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "native/base/scoped.h"
#include "native/base/program.h"
#include "native/base/report.h"
#include "command.h"
#include "options.h"
#include "staging.h"
#include "unpack.h"

/* Status of unsquashfs when all data is there, and device nodes or attributes are not: what no user may make. */
#define NOT_ALL 2
/* What is free then of a file system that ran full: unsquashfs writes by blocks. */
#define FULL (4ULL << 20)

int unpack(const char *image, unsigned long long offset, const char *folder, const struct settings *settings,
	   struct jail_error *err)
{
	scoped_list arguments = { 0 };

	text_list_add(&arguments, "unsquashfs");
	text_list_add(&arguments, "-quiet");
	if (!report_is_terminal())
		text_list_add(&arguments, "-no-progress");
	if (geteuid())
		text_list_add(&arguments, "-user-xattrs");
	text_list_add(&arguments, "-processors");
	text_list_take(&arguments, text_format("%ld", settings_number(settings, "ENROOT_MAX_PROCESSORS", 1)));
	text_list_add(&arguments, "-offset");
	text_list_take(&arguments, text_format("%llu", offset));
	/* The directory is there, and locked. */
	text_list_add(&arguments, "-force");
	text_list_add(&arguments, "-dest");
	text_list_add(&arguments, folder);
	text_list_add(&arguments, image);
	const struct program program = { .arguments = arguments.items, .quiet = true };
	int status = program_run(&program, err);
	if (status == NOT_ALL && !geteuid())
		report_warning("%s: some attributes or device nodes could not be made", image);
	if (status <= 0 || status == NOT_ALL)
		return status < 0 ? -1 : 0;
	struct statvfs space;
	/* By bytes, or by inodes where the file system counts them. */
	if (!statvfs(folder, &space) &&
	    ((unsigned long long)space.f_bavail * space.f_frsize < FULL || (space.f_files && !space.f_favail))) {
		jail_fail(err, "write", ENOSPC, "there is no room for what the image unpacks to (%llu bytes and %llu inodes are free); make "
			  "room there, or unpack elsewhere: ENROOT_DATA_PATH, or --target of a bundle",
			  (unsigned long long)space.f_bavail * space.f_frsize, (unsigned long long)space.f_favail);
		return jail_error_at(err, NULL, 0, folder);
	}
	jail_fail(err, NULL, 0, "unsquashfs ended with status %d: the image is damaged, or a quota is used up; its own words are before this",
		  status);
	return jail_error_at(err, NULL, 0, image);
}

static char *default_name(const char *image)
{
	const char *slash = strrchr(image, '/'), *base = slash ? slash + 1 : image;
	static const char *const suffixes[] = { ".sqsh", ".squashfs" };

	for (size_t i = 0; i < sizeof(suffixes) / sizeof(suffixes[0]); i++)
		if (text_ends(base, suffixes[i]) && base[strlen(suffixes[i])])
			return text_copy(base, strlen(base) - strlen(suffixes[i]));
	return text_copy(base, strlen(base));
}

static int create(const struct settings *settings, const char *image, const char *name, bool force)
{
	struct staging staging;
	struct jail_error err;

	if (command_check_name(settings, name, force))
		return 1;
	int result = staging_begin(&staging, settings, &err);
	if (!result)
		result = unpack(image, 0, staging.path, settings, &err) || staging_commit(&staging, name, force, &err) ? -1 : 0;
	staging_end(&staging);
	return result ? report_failure(&err) : 0;
}

int command_create(int argc, char **argv)
{
	struct settings settings;
	const char *given = NULL, *image;
	bool force = false;
	const struct command_option options[] = { { .name = "name", .letter = 'n', .value = &given },
						  { .name = "force", .letter = 'f', .flag = &force }, { .name = NULL } };
	int status = command_begin(argc, argv, options, "it takes one image", &image, &settings);

	if (status >= 0)
		return status;
	int unfit = command_check_image(image);
	if (unfit)
		return unfit > 0 ? 1 : report_error("%s: there is no such file", image);
	scoped_free char *name = given ? text_copy(given, strlen(given)) : default_name(image);
	return create(&settings, image, name, force || settings_true(&settings, "ENROOT_FORCE_OVERRIDE"));
}
