/* SPDX-License-Identifier: Apache-2.0 */
/* active-checks: measures idle nodes by a job, compares them, and hands the results to node-health,
 * which drains nodes that are too slow. The controller's follow-active-checks and `build.py health
 * --active` run it (docs/health.md). */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "active.h"
#include "native/base/program.h"
#include "native/base/scoped.h"

#define PROGRAM "active-checks"
#define CONFIG "/etc/slurm/health-active.conf"
#define CHECKS "/usr/lib/cellblock/health-active"
/* Root's alone, unlike what slurmctld has; when it is lost, all nodes are due. */
#define STATE_PARENT "/run/cellblock"
#define STATE STATE_PARENT "/active"
#define HEALTH "/usr/sbin/node-health"
/* Until a node is due again, where the table has no `every`. */
#define EVERY_S 86400

static const char usage_text[] =
	"usage: " PROGRAM " [OPTIONS] [NODE...]\n"
	"\n"
	"Measures idle nodes by a job, below all others: processors, memory, disk, and the network between them. Each is compared\n"
	"with its set. Without NODE: all that are idle.\n"
	"\n"
	"  --due          only nodes that are new, were repaired, are in doubt, or were not measured for long\n"
	"  --show         print the last verdicts as JSON, a line for each node\n"
	"  --metrics DIR  write the last verdicts, for the exporter, to DIR/NODE.prom, if DIR is there\n"
	"  --config FILE  (default " CONFIG "; without it nothing is done)\n"
	"  --checks DIR   (default " CHECKS ")\n"
	"  --state DIR    what is remembered, a folder for each node (default " STATE ")\n"
	"  --help         this text\n"
	"\n"
	"Exit status: 0 no node failed; 1 one did, or nothing could be measured; 2 wrong usage.\n";

struct request {
	bool due, show;
	char *config, *checks, *state, *metrics;
	char *const *names;
};

static int parse_arguments(int argc, char **argv, struct request *request)
{
	static char config[] = CONFIG, checks[] = CHECKS, state[] = STATE;
	static const struct option options[] = {
		{ "due", no_argument, NULL, 'd' },	    { "show", no_argument, NULL, 'S' },
		{ "config", required_argument, NULL, 'c' }, { "checks", required_argument, NULL, 'C' },
		{ "state", required_argument, NULL, 't' },  { "metrics", required_argument, NULL, 'm' },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	int option;

	*request = (struct request){ .config = config, .checks = checks, .state = state };
	while ((option = getopt_long(argc, argv, "h", options, NULL)) != -1) {
		switch (option) {
		case 'd': request->due = true; break;
		case 'S': request->show = true; break;
		case 'c': request->config = optarg; break;
		case 'C': request->checks = optarg; break;
		case 't': request->state = optarg; break;
		case 'm': request->metrics = optarg; break;
		case 'h': fputs(usage_text, stdout); return 0;
		default: fputs(PROGRAM ": wrong option; see " PROGRAM " --help\n", stderr); return 2;
		}
	}
	request->names = argv + optind;
	return -1;
}

static int complain(const struct jail_error *err)
{
	char line[1400];

	fprintf(stderr, PROGRAM ": %s\n", jail_error_format(err, line, sizeof(line)));
	return 1;
}

/* What node-health is started with for a node; `last` is its own option. */
static void health_words(struct text_list *words, const struct request *request, const char *node, const char *last)
{
	text_list_add(words, HEALTH);
	text_list_take(words, text_format("--node=%s", node));
	text_list_take(words, text_format("--config=%s", request->config));
	text_list_take(words, text_format("--checks=%s", request->checks));
	text_list_take(words, text_format("--state=%s", request->state));
	text_list_add(words, last);
}

/* Verdicts, by a file that node-health reads: strikes, budget and drain are its matter. */
static int hand_over(const struct request *request, const struct active_node *node, const struct text_buffer *verdicts,
		     struct jail_error *err)
{
	scoped_list words = { 0 };
	scoped_free char *path = text_format("%s/%s/verdicts", request->state, node->name);
	scoped_fd fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	if (fd < 0 || text_write(fd, verdicts->text, verdicts->length) || lseek(fd, 0, SEEK_SET))
		return jail_fail(err, "open", errno, "%s cannot be written; make room there", path);
	health_words(&words, request, node->name, "--take");
	const struct program program = { .arguments = words.items, .input = fd, .seconds = 60 };
	return program_run(&program, err) < 0 ? -1 : 0;
}

/* Prints what was found, and counts it. 1: a check failed. */
static int conclude(const struct request *request, const struct health_config *config, struct active_nodes *nodes,
		    struct active_node *node)
{
	scoped_buffer verdicts = { 0 };
	struct jail_error err = { 0 };
	scoped_free char *folder = text_format("%s/%s", request->state, node->name);
	int failed = 0;

	for (int kind = 0; kind < ACTIVE_KINDS; kind++) {
		scoped_free char *line = active_judge(nodes, node, (enum active_kind)kind, config);
		if (!line)
			continue;
		const char *verdict = strchr(line, ' ') + 1;
		printf("%s  %-16s %-14s %s\n", node->name, active_names[kind],
		       *verdict == 'P' ? "passed" : *verdict == 'F' ? "failed" : "could not run", verdict + 2);
		failed |= *verdict == 'F';
		text_append_string(&verdicts, line);
		text_append_string(&verdicts, "\n");
	}
	if (!verdicts.length)
		return 0;
	/* In doubt: it is looked at again soon. */
	node->due = failed;
	if ((mkdir(folder, 0700) && errno != EEXIST) || hand_over(request, node, &verdicts, &err))
		complain(&err);
	active_remember(node, request->state);
	return failed;
}

static bool is_named(const struct request *request, const char *name)
{
	for (char *const *one = request->names; *one; one++)
		if (!strcmp(*one, name))
			return true;
	return !*request->names;
}

/* Those of the set of `first` that are to be measured, and others that they are compared with. */
static size_t choose(const struct request *request, struct active_nodes *nodes, const struct active_node *first,
		     struct active_node **chosen)
{
	size_t n = 0;

	for (int wanted = 1; wanted >= 0; wanted--)
		for (size_t i = 0; i < nodes->n; i++) {
			struct active_node *node = &nodes->items[i];
			bool asked = is_named(request, node->name) && (!request->due || node->due);
			if (!node->idle || node->chosen || strcmp(node->set, first->set) || asked != (wanted == 1) ||
			    n >= (wanted ? ACTIVE_MOST_NODES : ACTIVE_LEAST_TO_COMPARE + 1))
				continue;
			node->chosen = true;
			chosen[n++] = node;
		}
	return n;
}

static int by_rank(const void *a, const void *b)
{
	return strverscmp((*(struct active_node *const *)a)->name, (*(struct active_node *const *)b)->name);
}

static int measure_nodes(const struct request *request, const struct health_config *config, struct active_nodes *nodes)
{
	struct active_node *chosen[ACTIVE_MOST_NODES];
	struct jail_error err = { 0 };
	int status = 0, measured = 0, tried = 0;

	for (size_t i = 0; i < nodes->n; i++) {
		struct active_node *node = &nodes->items[i];
		if (!node->idle || node->chosen || !is_named(request, node->name) || (request->due && !node->due))
			continue;
		tried = 1;
		size_t n = choose(request, nodes, node, chosen);
		qsort(chosen, n, sizeof(*chosen), by_rank);
		int done = active_measure(chosen, n, config, &err);
		if (done < 0)
			return complain(&err);
		/* What an ended job has found says little: its nodes stay due. */
		if (!done) {
			fprintf(stderr, PROGRAM ": the job on %s and %zu others did not start, or was ended for a user's\n",
				chosen[0]->name, n - 1);
			continue;
		}
		measured = 1;
		for (size_t j = 0; j < n; j++)
			status |= conclude(request, config, nodes, chosen[j]);
	}
	if (!tried && !request->due)
		fputs(PROGRAM ": no node that was asked for is idle; `sinfo` shows what they do\n", stderr);
	return status || (!measured && !request->due);
}

static int show(const struct request *request, const struct active_nodes *nodes)
{
	struct jail_error err = { 0 };
	char json[] = "--json";

	for (size_t i = 0; i < nodes->n; i++) {
		scoped_list words = { 0 };
		scoped_free char *file = text_format("%s/%s/state", request->state, nodes->items[i].name);
		if (!is_named(request, nodes->items[i].name) || access(file, F_OK))
			continue;
		health_words(&words, request, nodes->items[i].name, "--show");
		text_list_add(&words, json);
		const struct program program = { .arguments = words.items, .seconds = 30 };
		if (program_run(&program, &err))
			return 1;
	}
	return 0;
}

int main(int argc, char **argv)
{
	struct health_config config;
	struct active_nodes nodes;
	struct jail_error err = { 0 };
	struct request request;
	unsigned every = EVERY_S;
	int status = parse_arguments(argc, argv, &request);

	if (status >= 0)
		return status;
	int there = health_config_read(&config, request.config, request.checks, &err);
	if (there <= 0)
		return there ? complain(&err) : 0;
	(void)mkdir(STATE_PARENT, 0700);
	if (mkdir(request.state, 0700) && errno != EEXIST) {
		jail_fail(&err, "mkdir", errno, "%s cannot be made", request.state);
		return complain(&err);
	}
	scoped_free char *path = text_format("%s/lock", request.state);
	scoped_fd lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	/* By hand it waits for the other. */
	if (lock < 0 || (!request.show && flock(lock, LOCK_EX | (request.due ? LOCK_NB : 0))))
		return request.due ? 0 : 1;
	if (active_list(&nodes, &err))
		return complain(&err);
	for (size_t i = 0; i < config.n; i++)
		if (config.checks[i].every_s)
			every = config.checks[i].every_s;
	if (request.show) {
		status = show(&request, &nodes);
	} else {
		active_recall(&nodes, request.state, (long long)time(NULL), every);
		status = measure_nodes(&request, &config, &nodes);
		if (request.metrics)
			active_tell_metrics(&nodes, request.state, request.metrics);
	}
	free(nodes.items);
	health_config_free(&config);
	return status;
}
