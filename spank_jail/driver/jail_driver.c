/* SPDX-License-Identifier: Apache-2.0 */
/* jail-driver: collects a node's GPU driver in a directory that jobs see in the jail as /usr/local/nvidia. A node
 * runs it before slurmd. */
#define _GNU_SOURCE
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "native/base/scoped.h"
#include "driver.h"

#define PROGRAM "jail-driver"

enum { STATUS_FAILED = 1, STATUS_USAGE = 2 };

static const char usage_text[] =
	"usage: jail-driver collect [OPTIONS]\n"
	"       jail-driver show [--directory DIR]\n"
	"\n"
	"collect  finds this node's GPU driver, by CDI specifications or where a container runtime injects\n"
	"         it, and makes DIR/current of it: lib64, bin, and driver.json, by which the mount plan shows\n"
	"         it to jobs. Without a driver DIR/current is empty. Running jobs keep what they have.\n"
	"show     prints what DIR/current was made of\n"
	"\n"
	"  --device NAME     CDI device, vendor/class=name; may be repeated (default nvidia.com/gpu=all,\n"
	"                    if a specification has it)\n"
	"  --spec-dir DIR    CDI specifications; may be repeated (default /etc/cdi and /var/run/cdi)\n"
	"  --libraries DIR   where libraries are injected; may be repeated (default: the usual directories)\n"
	"  --programs DIR    where programs are injected; may be repeated (default /usr/bin)\n"
	"  --dev DIR         where devices are injected (default /dev)\n"
	"  --jail DIR        root of the jail, whose stubs keep their names (default /mnt/jail/root)\n"
	"  --directory DIR   where to make it (default /run/cellblock/driver)\n"
	"  --help            this text\n"
	"\n"
	"Exit status: 0 done, 1 failed and DIR/current is what it was, 2 wrong usage.\n";

static int usage_error(const char *what, const char *name)
{
	fprintf(stderr, PROGRAM ": %s%s; see " PROGRAM " --help\n", what, name);
	return STATUS_USAGE;
}

static int complain(const struct jail_error *err)
{
	char line[1400];

	fprintf(stderr, PROGRAM ": %s\n", jail_error_format(err, line, sizeof(line)));
	return STATUS_FAILED;
}

/* Absolute: the specification that is made holds some of them. */
static int add(struct driver_strings *strings, const char *text, size_t limit)
{
	if (strings->n == limit)
		return usage_error("this option is given too often: ", text);
	strings->items[strings->n++] = text;
	return -1;
}

static bool is_directory_option(int option)
{
	return option != 'd' && option != 'h' && option != '?';
}

/* -1: go on, else the exit status. */
static int parse_arguments(int argc, char **argv, struct driver_request *request, const char **command)
{
	static const struct option options[] = {
		{ "device", required_argument, NULL, 'd' },    { "spec-dir", required_argument, NULL, 's' },
		{ "libraries", required_argument, NULL, 'l' }, { "programs", required_argument, NULL, 'p' },
		{ "dev", required_argument, NULL, 'v' },       { "jail", required_argument, NULL, 'j' },
		{ "directory", required_argument, NULL, 'D' }, { "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	const size_t most = sizeof(request->devices.items) / sizeof(request->devices.items[0]);
	int option, status = -1;

	*request = (struct driver_request){
		.dev = "/dev", .directory = "/run/cellblock/driver", .jail = "/mnt/jail/root",
	};
	while (status < 0 && (option = getopt_long(argc, argv, "h", options, NULL)) != -1) {
		if (is_directory_option(option) && (optarg[0] != '/' || strstr(optarg, "/../")))
			return usage_error("an absolute path without \"..\" is needed, not ", optarg);
		switch (option) {
		case 'd': status = add(&request->devices, optarg, most); break;
		case 's': status = add(&request->spec_dirs, optarg, JAIL_MAX_PARAMETERS); break;
		case 'l': status = add(&request->libraries, optarg, most); break;
		case 'p': status = add(&request->programs, optarg, most); break;
		case 'v': request->dev = optarg; break;
		case 'j': request->jail = optarg; break;
		case 'D': request->directory = optarg; break;
		case 'h': fputs(usage_text, stdout); return 0;
		default: return usage_error("wrong option", "");
		}
	}
	if (status >= 0)
		return status;
	if (optind + 1 != argc)
		return usage_error("one command is needed: collect or show", "");
	*command = argv[optind];
	return -1;
}

static int show(const struct driver_request *request)
{
	char path[4200], buffer[4096];
	size_t got;

	snprintf(path, sizeof(path), "%s/current/.contents", request->directory);
	FILE *contents = fopen(path, "re");
	if (!contents) {
		fprintf(stderr, PROGRAM ": %s: %s: nothing was collected here; run " PROGRAM " collect\n", path,
			strerrordesc_np(errno));
		return STATUS_FAILED;
	}
	while ((got = fread(buffer, 1, sizeof(buffer), contents)))
		fwrite(buffer, 1, got, stdout);
	fclose(contents);
	return fflush(stdout) ? STATUS_FAILED : 0;
}

static void tell(const struct driver_set *set, const struct driver_request *request, enum driver_result result)
{
	const char *state = result == DRIVER_UNCHANGED ? "unchanged" : "made";

	if (!set->n_files && !set->n_found) {
		printf(PROGRAM ": no GPU driver on this node: %s/current is empty (%s)\n", request->directory, state);
		return;
	}
	const char *version = driver_version(set);
	printf(PROGRAM ": %s%s from %s: %zu files in %s/current (%s)\n", *version ? "driver " : "a driver", version,
	       set->n_found ? set->found[0].spec.file : "injected files", set->n_files, request->directory, state);
}

static int gather(struct driver_set *set, const struct driver_request *request, struct jail_error *err)
{
	if (driver_from_cdi(set, request, err))
		return -1;
	if (!set->n_found && driver_from_injected(set, request, err))
		return -1;
	return driver_check(set, err);
}

static int collect(const struct driver_request *request)
{
	struct driver_set set = { .n_files = 0 };
	struct jail_error err;
	enum driver_result result = gather(&set, request, &err) ? DRIVER_FAILED : driver_publish(&set, request, &err);

	if (set.notices)
		for (char *rest = set.notices, *line; (line = strsep(&rest, "\n")) && *line;)
			fprintf(stderr, PROGRAM ": %s\n", line);
	if (result != DRIVER_FAILED)
		tell(&set, request, result);
	driver_set_free(&set);
	return result == DRIVER_FAILED ? complain(&err) : 0;
}

int main(int argc, char **argv)
{
	struct driver_request request;
	const char *command = NULL;
	int status = parse_arguments(argc, argv, &request, &command);

	if (status >= 0)
		return status;
	/* Modes are meant exactly: users of the jail read what is made here. */
	umask(022);
	if (!strcmp(command, "collect"))
		return collect(&request);
	if (!strcmp(command, "show"))
		return show(&request);
	return usage_error("there is no command ", command);
}
