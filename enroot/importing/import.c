/* SPDX-License-Identifier: Apache-2.0 */
/* Implements `enroot import [-a ARCH] [-o FILE] URI`: writes an image in a registry or on this machine to a squashfs
 * file. main.c calls it. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "native/base/descriptor.h"
#include "native/base/scoped.h"
#include "enroot/command/command.h"
#include "native/base/atomic_file.h"
#include "native/base/report.h"
#include "commands.h"
#include "cached_image.h"
#include "progress.h"

struct import {
	const char *architecture, *uri;
	const struct settings *settings;
	const char *path; /* of the file to make */
	bool force;
	int socket; /* takes a descriptor of the cache's file instead; -1: none */
};

static int into_file(const struct import *import, struct cached_image *cached)
{
	struct atomic_file output;
	struct jail_error err;
	int result = atomic_file_open(&output, import->path, import->force, &err);

	if (result)
		report_failure(&err);
	else if (!(result = cached_image_produce(cached, output.fd)) && (result = atomic_file_commit(&output, 0666, &err)))
		report_failure(&err);
	atomic_file_close(&output);
	return result;
}

/* The path, and the descriptor whose lock keeps the image from being trimmed: whoever has it may run the cache's own file. */
static bool hand_over(const struct import *import, const struct cached_image *cached)
{
	size_t length = strlen(cached->image.path);
	scoped_free char *message = text_format("%s%c%s", cached->image.path, '\0', cached->found ? ENROOT_IMAGE_FOUND : "");

	return message && jail_descriptor_send(import->socket, cached->image.fd, message,
					       cached->found ? length + 1 + strlen(ENROOT_IMAGE_FOUND) : length);
}

static int run_import(const struct import *import)
{
	struct cached_image cached;
	struct jail_error err;
	int result = cached_image_begin(&cached, import->uri, import->architecture, import->settings);

	if (!result)
		result = cached_image_get(&cached);
	if (result > 0)
		result = into_file(import, &cached);
	else if (!result && import->socket >= 0 && !cached.image.draft && hand_over(import, &cached))
		result = 0;
	/* Whoever cannot be given it finds the file. */
	else if (!result && (result = cache_deliver(&cached.image, import->path, import->force, &err)))
		report_failure(&err);
	if (!result && cached.found)
		report_info("%s is in the cache: no layer was read", import->uri);
	cached_image_end(&cached);
	return result;
}

static int import_image(const struct import *import)
{
	int64_t began = progress_now_ns();
	char bytes[32];
	struct stat st;
	int result;

	/* Before minutes are spent. */
	if (!import->force && !lstat(import->path, &st))
		return report_error("%s: it exists already; remove it, or give another name with --output", import->path);
	result = run_import(import);
	if (!result && !lstat(import->path, &st))
		report_info("%s: %s, in %.1f s", import->path, progress_bytes((unsigned long long)st.st_size, bytes),
			    (double)(progress_now_ns() - began) / 1e9);
	return result ? 1 : 0;
}

int importing_import(int argc, char **argv)
{
	struct import import = { .socket = -1 };
	const char *output = NULL, *descriptor = NULL;
	const struct command_option options[] = {
		{ .name = "arch", .letter = 'a', .value = &import.architecture },
		{ .name = "output", .letter = 'o', .value = &output },
		/* Of other programs, no user's: pyxis/step/image_descriptor.h. */
		{ .name = "descriptor", .value = &descriptor },
		{ .name = NULL },
	};
	struct settings settings;
	int status = command_begin(argc, argv, options, "it takes one URI", &import.uri, &settings);

	if (status >= 0)
		return status;
	if (descriptor && (import.socket = atoi(descriptor)) < 3)
		return command_usage("import", "--descriptor takes the number of a socket");
	import.settings = &settings;
	import.force = settings_true(&settings, "ENROOT_FORCE_OVERRIDE");
	scoped_free char *name = import_source_name(import.uri);
	if (!name)
		return 1;
	scoped_free char *path = output ? text_format("%s", output) : text_format("%s.sqsh", name);
	import.path = path;
	return import_image(&import);
}
