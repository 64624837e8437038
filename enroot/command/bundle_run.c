/* SPDX-License-Identifier: Apache-2.0 */
/* Runs this program as a bundle, that is with an image appended to its file: mounts or extracts that image and starts
 * the container. main.c calls it when the program is a bundle. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "native/base/scoped.h"
#include "native/base/report.h"
#include "bundle.h"
#include "command.h"
#include "options.h"
#include "staging.h"
#include "start_options.h"
#include "unpack.h"

/* More than that is no configuration. */
#define MAX_FILES (16 * 1024 * 1024)

static int check_image(const char *self, const struct bundle_header *header, struct jail_error *err)
{
	char sha256[72];
	scoped_fd fd = open(self, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return jail_fail(err, "open", errno, "cannot read the bundle");
	if (bundle_hash(fd, (off_t)header->offset, sha256, err))
		return -1;
	return strcmp(sha256, header->sha256) ? jail_fail(err, NULL, 0, "the image in this bundle is damaged: its SHA-256 is %s, "
							  "and was %s", sha256, header->sha256) : 0;
}

/* The image as a tree, where the user asks for it: whole or not there. */
static int extract(const char *self, const struct bundle_header *header, char **root, struct jail_error *err)
{
	struct settings settings;
	struct staging staging;
	struct stat st;
	scoped_free char *target = header->target[0] ? text_format("%s", header->target)
				   : text_format("%s.rootfs", strrchr(self, '/') + 1);
	char *slash = strrchr(target, '/');
	scoped_free char *folder = slash ? text_copy(target, slash == target ? 1 : (size_t)(slash - target)) : text_copy(".", 1);
	const char *name = slash ? slash + 1 : target;

	if (!*name)
		return jail_fail(err, NULL, 0, "the bundle's --target \"%s\" ends with \"/\": it names no directory", target);
	if (settings_load(&settings, NULL, err))
		return -1;
	if (!lstat(target, &st)) {
		jail_fail(err, NULL, EEXIST, "it exists already; remove it, or extract elsewhere");
		return jail_error_at(err, NULL, 0, target);
	}
	report_info("extracting to %s", target);
	int result = staging_begin_in(&staging, folder, err) ||
		     unpack(self, header->offset, staging.path, &settings, err) ||
		     staging_commit(&staging, name, false, err) ? -1 : 0;
	staging_end(&staging);
	*root = result ? NULL : realpath(target, NULL);
	return result;
}

/* The configuration files that it carries; "" when none. */
static int read_files(const char *self, const struct bundle_header *header, struct text_buffer *files,
		      struct jail_error *err)
{
	char part[16384];
	scoped_fd fd = open(self, O_RDONLY | O_CLOEXEC);

	text_append(files, "", 0);
	if (header->files_length > MAX_FILES)
		return jail_fail(err, NULL, EFBIG, "this bundle's header is damaged");
	while (files->length < header->files_length) {
		size_t left = header->files_length - files->length;
		ssize_t got = pread(fd, part, left < sizeof(part) ? left : sizeof(part),
				    (off_t)(header->files_offset + files->length));
		if (got <= 0)
			return jail_fail(err, "pread", got ? errno : EIO, "cannot read the bundle's configuration files");
		text_append(files, part, (size_t)got);
	}
	return 0;
}

static int print_info(const char *self, const struct bundle_header *header)
{
	struct stat st;

	puts(header->description[0] ? header->description : "(no description)");
	if (!stat(self, &st))
		printf("image: squashfs, %lld bytes from byte %llu on\n", (long long)st.st_size - (long long)header->offset,
		       (unsigned long long)header->offset);
	printf("SHA-256: %s\n", header->sha256[0] ? header->sha256 : "not checked");
	printf("configuration files: %llu bytes\n", (unsigned long long)header->files_length);
	printf("made by: enroot %s, compatible with %s\n", ENROOT_VERSION, ENROOT_COMPATIBLE);
	return fflush(stdout) ? 1 : 0;
}

static int print_help(const char *name)
{
	printf("Usage: %s [options of enroot start] [-i] [-k] [-q] [-v] [-x] [--] [COMMAND] [ARG...]\n\n"
	       " -i, --info     what this is\n -k, --keep     extract, run from there, and keep it\n"
	       " -q, --quiet    no messages but errors\n -v, --verbose  more messages\n -x, --extract  extract only\n\n"
	       "The options of start: enroot start --help.\n", name);
	return fflush(stdout) ? 1 : 0;
}

static int run(const struct bundle_header *header, int argc, char **argv)
{
	bool info = false, keep = false, quiet = false, verbose = false, only = false, help = false;
	const struct command_option own[] = {
		{ .name = "info", .letter = 'i', .flag = &info },      { .name = "keep", .letter = 'k', .flag = &keep },
		{ .name = "quiet", .letter = 'q', .flag = &quiet },    { .name = "verbose", .letter = 'v', .flag = &verbose },
		{ .name = "extract", .letter = 'x', .flag = &only }, { .name = "help", .letter = 'h', .flag = &help },
		{ .name = NULL },
	};
	struct start_options options;
	struct jail_error err;
	scoped_buffer files = { 0 };
	char *self = realpath("/proc/self/exe", NULL), *root = NULL;

	if (start_parse(argc, argv, own, &options) >= 0)
		return 1;
	if (help)
		return print_help(argv[0]);
	if (!self)
		return report_error("cannot find this program's own file");
	if (info)
		return print_info(self, header);
	report_level(quiet ? REPORT_ERRORS : verbose ? REPORT_ALL : REPORT_WARNINGS);
	report_info("the image begins at byte %llu of %s", (unsigned long long)header->offset, self);
	if (header->sha256[0] && check_image(self, header, &err))
		return report_failure(&err);
	if ((keep || only) && extract(self, header, &root, &err))
		return report_failure(&err);
	if (only && !keep)
		return 0;
	if (read_files(self, header, &files, &err))
		return report_failure(&err);
	if (files.length)
		options.bundled_config = &files;
	return start_container(&options, root ? NULL : self, header->offset, root, options.rest);
}

bool bundle_is_one(int *status, int argc, char **argv)
{
	const struct bundle_header header = bundle_own_header();

	if (!header.offset)
		return false;
	*status = run(&header, argc, argv);
	return true;
}
