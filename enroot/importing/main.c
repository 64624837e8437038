/* SPDX-License-Identifier: Apache-2.0 */
/* enroot-image: the program behind `enroot import`, `load`, `digest` and `cache`. enroot/command/run_enroot_image.c
 * runs it. It is apart from enroot because it loads libraries for the network and compression, which would slow down
 * `enroot start`. */
#define _GNU_SOURCE
#include <string.h>
#include <sys/resource.h>

#include "native/base/report.h"
#include "commands.h"

#define OPEN_FILES 8192

static struct rlimit usual_limit;
static bool raised_it;

/* All of it but "get", which is about images that are not there yet. */
static int run_cache(int argc, char **argv)
{
	return argc > 1 && !strcmp(argv[1], "get") ? importing_cache_get(argc - 1, argv + 1) : cache_command(argc, argv);
}

static const struct { const char *name; int (*run)(int argc, char **argv); } importing_commands[] = {
	{ "cache", run_cache },
	{ "digest", importing_digest },
	{ "import", importing_import },
	{ "load", importing_load },
};

/* The cache keeps four files open for each layer that it gets, and an image may have a thousand; the usual limit is 1024. */
static void raise_limit(void)
{
	if (getrlimit(RLIMIT_NOFILE, &usual_limit) || usual_limit.rlim_cur >= OPEN_FILES)
		return;
	struct rlimit raised = { usual_limit.rlim_max < OPEN_FILES ? usual_limit.rlim_max : OPEN_FILES, usual_limit.rlim_max };
	raised_it = !setrlimit(RLIMIT_NOFILE, &raised);
}

void importing_restore_limit(void)
{
	if (raised_it)
		setrlimit(RLIMIT_NOFILE, &usual_limit);
}

int main(int argc, char **argv)
{
	raise_limit();
	jail_place = "in the image";
	for (size_t i = 0; argc > 1 && i < sizeof(importing_commands) / sizeof(importing_commands[0]); i++)
		if (!strcmp(argv[1], importing_commands[i].name))
			return importing_commands[i].run(argc - 1, argv + 1);
	return report_error("this program belongs to enroot; see: enroot help");
}
