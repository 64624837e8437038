/* SPDX-License-Identifier: Apache-2.0 */
/* Implements `enroot load [-a ARCH] [-n NAME] [-f] URI`: makes a container root of an image in a registry or on this
 * machine. main.c calls it. */
#define _GNU_SOURCE
#include <stdlib.h>

#include "native/base/scoped.h"
#include "enroot/command/command.h"
#include "enroot/command/staging.h"
#include "native/base/report.h"
#include "commands.h"
#include "import_source.h"
#include "progress.h"

struct arguments {
	const char *architecture, *name, *uri;
	bool force;
};

static int load_once(const struct arguments *arguments, const char *name, const struct settings *settings,
		     const struct registry_documents *documents, struct import_source *import)
{
	struct staging staging;
	struct jail_error err;
	char bytes[32];
	int result;

	if (import_source_open(import, arguments->uri, arguments->architecture, settings, documents))
		return -1;
	import->cache = documents->context;
	if (import_source_resolve(import) || import_source_start(import))
		return -1;
	report_info("Loading %s: %u layers, %s", arguments->uri, import->request.layers.n_layers,
		    progress_bytes(import->request.total, bytes));
	if (staging_begin(&staging, settings, &err))
		result = -report_failure(&err);
	else if (!(result = produce_root(&import->request, staging.lock)) &&
		 staging_commit(&staging, name, arguments->force, &err))
		result = -report_failure(&err);
	if (!result)
		import_source_keep(import);
	staging_end(&staging);
	return result;
}

static int load(const struct arguments *arguments, const char *name, const struct settings *settings,
		const struct registry_documents *documents, struct import_source *import)
{
	int result = load_once(arguments, name, settings, documents, import);

	/* A layer of the cache was not what its name says; it is out of the way now. */
	if (!result || !import->kept.rejected)
		return result;
	import_source_close(import);
	return load_once(arguments, name, settings, documents, import);
}

static int load_image(const struct arguments *arguments, const struct settings *settings)
{
	int64_t began = progress_now_ns();
	scoped_free char *name = arguments->name ? text_format("%s", arguments->name) : import_source_name(arguments->uri);
	struct import_source import = { .uri = NULL };
	int result;

	if (!name || command_check_name(settings, name, arguments->force))
		return 1;
	struct cache *cache = cache_open(settings);
	const struct registry_documents documents = { cache_document_load, cache_document_keep, cache };
	result = load(arguments, name, settings, &documents, &import);
	import_source_close(&import);
	cache_close(cache);
	if (!result)
		report_info("Made the container %s in %.1f s", name, (double)(progress_now_ns() - began) / 1e9);
	return result ? 1 : 0;
}

int importing_load(int argc, char **argv)
{
	struct arguments arguments = { .name = NULL };
	const struct command_option options[] = {
		{ .name = "arch", .letter = 'a', .value = &arguments.architecture },
		{ .name = "name", .letter = 'n', .value = &arguments.name },
		{ .name = "force", .letter = 'f', .flag = &arguments.force },
		{ .name = NULL },
	};
	struct settings settings;
	int status = command_begin(argc, argv, options, "it takes one URI", &arguments.uri, &settings);

	if (status >= 0)
		return status;
	arguments.force = arguments.force || settings_true(&settings, "ENROOT_FORCE_OVERRIDE");
	return load_image(&arguments, &settings);
}
