/* SPDX-License-Identifier: Apache-2.0 */
/* `enroot cache get [-a ARCH] URI [COMMAND [ARG...]]`: prints the path of the image in the cache, imports it first if it is not
 * there, or runs COMMAND with the path. main.c calls it.
 *
 * Whoever merely reads the path may find that another import has trimmed the image by then. COMMAND, which takes the place of this
 * process, inherits the descriptor whose lock says that the image is in use: as long as it, or a child that has the descriptor, lives. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "native/base/scoped.h"
#include "enroot/command/command.h"
#include "enroot/command/options.h"
#include "native/base/report.h"
#include "commands.h"
#include "cached_image.h"

/* What COMMAND finds the path in. */
#define VARIABLE "ENROOT_IMAGE"

/* Returns only when it cannot be run: as shells do, 127 when there is none, else 126. */
static int run_program(char **words, struct cached_image *cached)
{
	const struct cache_image *image = &cached->image;

	import_source_close(&cached->import);
	if (fcntl(image->fd, F_SETFD, 0) || setenv(VARIABLE, image->path, 1))
		return report_error("%s: cannot be held for %s", image->path, words[0]);
	importing_restore_limit();
	execvp(words[0], words);
	int number = errno;
	report_error("%s: cannot be run: %s", words[0], strerrordesc_np(number));
	return number == ENOENT ? 127 : 126;
}

static int get(const char *uri, const char *architecture, char **words, const struct settings *settings)
{
	struct cached_image cached;
	int result = cached_image_begin(&cached, uri, architecture, settings);

	if (!result)
		result = cached_image_get(&cached);
	if (result > 0)
		report_error("%s: images of this kind, or at this time, are not kept in the cache; use: enroot import", uri);
	else if (!result && cached.image.draft)
		result = report_error("%s: the cache has no room for it; use: enroot import", uri);
	else if (!result && words[0])
		result = run_program(words, &cached);
	else if (!result && (puts(cached.image.path) < 0 || fflush(stdout)))
		result = report_error("cannot write to standard output");
	cached_image_end(&cached);
	return result < 0 ? 1 : result;
}

int importing_cache_get(int argc, char **argv)
{
	const char *architecture = NULL;
	const struct command_option options[] = { { .name = "arch", .letter = 'a', .value = &architecture }, { .name = NULL } };
	char name[] = "cache";
	struct settings settings;
	struct jail_error err;
	int first;

	argv[0] = name;
	int status = command_options(argc, argv, options, OPTIONS_AHEAD, &first);
	if (status >= 0)
		return status;
	if (first == argc)
		return command_usage("cache", "get takes a URI");
	return settings_load(&settings, NULL, &err) ? report_failure(&err) : get(argv[first], architecture, argv + first + 1, &settings);
}
