/* load [-a ARCH] [-n NAME] [-f] URI */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "../../spank_jail/core/scoped.h"
#include "../command/command.h"
#include "../command/options.h"
#include "../command/staging.h"
#include "../text/report.h"
#include "commands.h"
#include "origin.h"
#include "progress.h"

struct arguments {
	const char *architecture, *name, *uri;
	bool force;
};

static int check_name(const char *name, const struct arguments *arguments, const struct settings *settings)
{
	struct stat st;

	if (!*name || *name == '.' || strchr(name, '/'))
		return report_error("\"%s\" is no name of a container: it may hold no \"/\" and not begin with a dot", name);
	scoped_free char *root = text_format("%s/%s", settings_get(settings, "ENROOT_DATA_PATH"), name);
	if (!arguments->force && !lstat(root, &st))
		return report_error("%s: a container of this name exists already; remove it, give another name with --name, or "
				    "use --force", name);
	return 0;
}

static int load_once(const struct arguments *arguments, const char *name, const struct settings *settings,
		     const struct registry_documents *documents, struct origin *origin)
{
	struct staging staging;
	struct jail_error err;
	char bytes[32];
	int result;

	if (origin_open(origin, arguments->uri, arguments->architecture, settings, documents))
		return -1;
	origin->cache = documents->context;
	if (origin_resolve(origin) || origin_start(origin))
		return -1;
	report_info("Loading %s: %u layers, %s", arguments->uri, origin->request.layers.n_layers,
		    progress_bytes(origin->request.total, bytes));
	if (staging_begin(&staging, settings, &err))
		result = -report_failure(&err);
	else if (!(result = produce_root(&origin->request, staging.lock)) &&
		 staging_commit(&staging, name, arguments->force, &err))
		result = -report_failure(&err);
	if (!result)
		origin_keep(origin);
	staging_end(&staging);
	return result;
}

static int load(const struct arguments *arguments, const char *name, const struct settings *settings,
		const struct registry_documents *documents, struct origin *origin)
{
	int result = load_once(arguments, name, settings, documents, origin);

	/* A layer of the cache was not what its name says; it is out of the way now. */
	if (!result || !origin->kept.rejected)
		return result;
	origin_close(origin);
	return load_once(arguments, name, settings, documents, origin);
}

static int load_image(const struct arguments *arguments, const struct settings *settings)
{
	int64_t began = progress_now_ns();
	scoped_free char *name = arguments->name ? text_format("%s", arguments->name) : origin_name(arguments->uri);
	struct origin origin = { .uri = NULL };
	int result;

	if (!name || check_name(name, arguments, settings))
		return 1;
	struct cache *cache = cache_open(settings);
	const struct registry_documents documents = { cache_document_load, cache_document_keep, cache };
	result = load(arguments, name, settings, &documents, &origin);
	origin_close(&origin);
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
	struct jail_error err;
	int first, status = command_options(argc, argv, options, OPTIONS_ANYWHERE, &first);

	if (status >= 0)
		return status;
	if (first + 1 != argc)
		return command_usage("load", "it takes one URI");
	if (settings_load(&settings, NULL, &err))
		return report_failure(&err);
	arguments.force = arguments.force || settings_true(&settings, "ENROOT_FORCE_OVERRIDE");
	arguments.uri = argv[first];
	return load_image(&arguments, &settings);
}
