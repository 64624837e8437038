/* SPDX-License-Identifier: Apache-2.0 */
/* node-health: runs the checks of a node, and drains the node when one fails. slurmd runs it as HealthCheckProgram
 * and as Prolog, role-worker before the node registers (docs/health.md). */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "controller.h"
#include "native/base/scoped.h"
#include "tell.h"

#define PROGRAM "node-health"
#define STATE "/run/cellblock/health"
#define NODE_NAME "/run/cellblock/node-name"

enum mode { MODE_TURN, MODE_PROLOG, MODE_START, MODE_SHOW, MODE_TAKE };

static const char usage_text[] =
	"usage: " PROGRAM " [OPTIONS]\n"
	"\n"
	"Runs the node's health checks once, counts failures, and drains the node, or gives it back.\n"
	"\n"
	"  --prolog       run the checks that protect a job; status 1: the node is drained, the job goes back\n"
	"  --start        run all as often as it takes to strike out; prints a reason and drains nothing\n"
	"  --show         print the last verdict of each check; with --json as one object\n"
	"  --take         run nothing: count verdicts from standard input, lines CHECK P|F|C TEXT (active-checks)\n"
	"  --offline      say nothing to Slurm\n"
	"  --node NAME    the node (default: $SLURMD_NODENAME, else what " NODE_NAME " says)\n"
	"  --config FILE  (default " HEALTH_CONFIG "; without it nothing is done)\n"
	"  --checks DIR   (default " HEALTH_CHECKS ")\n"
	"  --state DIR    what is remembered, a folder for each node (default " STATE ")\n"
	"  --help         this text\n"
	"\n"
	"Exit status: 0 done; 1 failed, or a job must not run here; 2 wrong usage.\n";

struct request {
	enum mode mode;
	bool as_json, offline;
	const char *config, *checks, *state, *node;
};

static int complain(const struct jail_error *err)
{
	char line[1400];

	fprintf(stderr, PROGRAM ": %s\n", jail_error_format(err, line, sizeof(line)));
	return 1;
}

/* -1: go on, else the exit status. */
static int parse_arguments(int argc, char **argv, struct request *request)
{
	static const struct option options[] = {
		{ "prolog", no_argument, NULL, 'p' },	   { "start", no_argument, NULL, 's' },
		{ "show", no_argument, NULL, 'S' },	   { "json", no_argument, NULL, 'j' },
		{ "take", no_argument, NULL, 'T' },
		{ "offline", no_argument, NULL, 'o' },	   { "node", required_argument, NULL, 'n' },
		{ "config", required_argument, NULL, 'c' }, { "checks", required_argument, NULL, 'C' },
		{ "state", required_argument, NULL, 't' },  { "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	int option;

	*request = (struct request){ .config = HEALTH_CONFIG, .checks = HEALTH_CHECKS, .state = STATE };
	while ((option = getopt_long(argc, argv, "h", options, NULL)) != -1) {
		switch (option) {
		case 'p': request->mode = MODE_PROLOG; break;
		case 's': request->mode = MODE_START; break;
		case 'S': request->mode = MODE_SHOW; break;
		case 'T': request->mode = MODE_TAKE; break;
		case 'j': request->as_json = true; break;
		case 'o': request->offline = true; break;
		case 'n': request->node = optarg; break;
		case 'c': request->config = optarg; break;
		case 'C': request->checks = optarg; break;
		case 't': request->state = optarg; break;
		case 'h': fputs(usage_text, stdout); return 0;
		default: fputs(PROGRAM ": wrong option; see " PROGRAM " --help\n", stderr); return 2;
		}
	}
	if (optind == argc)
		return -1;
	fputs(PROGRAM ": takes no arguments but options; see " PROGRAM " --help\n", stderr);
	return 2;
}

/* A new string, or NULL. */
static char *node_name(const struct request *request)
{
	const char *given = request->node ? request->node : getenv("SLURMD_NODENAME");

	if (given)
		return text_copy(given, strlen(given));
	char *name = text_read(AT_FDCWD, NODE_NAME, 300, NULL, &(struct jail_error){ 0 });
	if (name)
		name[strcspn(name, "\n")] = 0;
	return name;
}

/* Whether it is the name of a folder, as names of nodes are. */
static bool is_node(const char *name)
{
	return name && *name && *name != '.' && !name[strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")];
}

/* An open lock, released when it is closed; -1. */
static int lock(const char *folder, const char *name, int how)
{
	scoped_free char *path = text_format("%s/%s", folder, name);
	scoped_fd fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

	return fd < 0 || flock(fd, how) ? -1 : jail_keep(&fd);
}

/* A check that takes longer than a turn: the verdict of its last run, if that is over. */
static void take_late(const char *folder, const char *name, struct health_result *result)
{
	scoped_free char *path = text_format("%s/%s/late", folder, name);
	scoped_free char *text = text_read(AT_FDCWD, path, 4096, NULL, &(struct jail_error){ 0 });

	*result = (struct health_result){ .verdict = HEALTH_RUNS };
	if (!text || !strchr("PFC", text[0]) || !text[0] || text[1] != ' ')
		return;
	result->verdict = (enum health_verdict)text[0];
	snprintf(result->text, sizeof(result->text), "%s", text + 2);
	unlink(path);
}

/* Runs it in a process of its own, which slurmd does not end with the turn. */
static void start_late(const struct health_check *check, const char *folder, const char *node)
{
	scoped_free char *own = text_format("%s/%s", folder, check->name);
	scoped_free char *path = text_format("%s/late", own);
	struct health_result result = { 0 };

	mkdir(own, 0700);
	scoped_fd running = lock(own, "running", LOCK_EX | LOCK_NB);
	if (running < 0 || fork())
		return;
	setsid();
	int null = open("/dev/null", O_RDWR);
	for (int fd = 0; fd < 3; fd++)
		dup2(null, fd);
	health_run(&check, 1, folder, node, &result);
	scoped_free char *text = text_format("%c %s", (char)result.verdict, result.text);
	(void)text_replace(path, text, strlen(text), 0600);
	_exit(0);
}

/* One that passed not long ago is left out. */
static bool is_due(const struct health_check *check, const struct health_entry *entry, long long now)
{
	return !check->every_s || entry->verdict != HEALTH_PASSED || entry->at > now || now - entry->at >= check->every_s;
}

/* Which checks run in this mode, of those that are due. */
static size_t choose(const struct health_turn *turn, enum mode mode, const struct health_check **chosen)
{
	size_t n = 0;

	for (size_t i = 0; i < turn->config->n; i++) {
		const struct health_check *check = &turn->config->checks[i];
		bool late = check->limit_s > HEALTH_LONGEST_IN_TURN_S;

		if (check->off || (mode == MODE_PROLOG && !check->prolog) || (mode != MODE_TURN && late) ||
		    (mode == MODE_TURN && !is_due(check, health_state_entry(turn->state, check->name), turn->now)))
			continue;
		chosen[n++] = check;
	}
	return n;
}

static void run_chosen(const struct health_turn *turn, const struct health_check **chosen, size_t n, struct health_result *results)
{
	const struct health_check *now[HEALTH_MOST_CHECKS] = { NULL };
	struct health_result quick[HEALTH_MOST_CHECKS];
	size_t count = 0, next = 0;

	for (size_t i = 0; i < n; i++)
		if (chosen[i]->limit_s <= HEALTH_LONGEST_IN_TURN_S)
			now[count++] = chosen[i];
	health_run(now, count, turn->folder, turn->node, quick);
	for (size_t i = 0; i < n; i++) {
		if (chosen[i]->limit_s <= HEALTH_LONGEST_IN_TURN_S) {
			results[i] = quick[next++];
			continue;
		}
		take_late(turn->folder, chosen[i]->name, &results[i]);
		if (results[i].verdict == HEALTH_RUNS)
			start_late(chosen[i], turn->folder, turn->node);
	}
}

/* A failure before a job that leaves this check out, where the administrator lets it, is none. Slurm is asked only then. */
static void leave_out(const struct health_check **chosen, size_t n, struct health_result *results)
{
	const char *job = getenv("SLURM_JOB_ID");

	for (size_t i = 0; i < n && job; i++)
		if (results[i].verdict == HEALTH_FAILED && chosen[i]->optional && health_controller_job_leaves_out(job, chosen[i]->name))
			results[i].verdict = HEALTH_RUNS;
}

/* Counts verdicts from standard input. */
static int count_given(struct health_turn *turn)
{
	scoped_free char *file = text_format("%s/state", turn->folder);
	scoped_free char *line = NULL;
	scoped_fd held = lock(turn->folder, "lock", LOCK_EX);
	size_t capacity = 0;

	health_state_read(turn->state, file);
	health_state_keep(turn->state, turn->config);
	while (getline(&line, &capacity, stdin) > 0) {
		struct health_result result = { 0 };
		char name[HEALTH_NAME_SIZE], verdict;
		int end = 0;
		if (sscanf(line, "%31s %c %n", name, &verdict, &end) != 2 || !end || !strchr("PFC", verdict))
			continue;
		const struct health_check *check = health_config_find(turn->config, name);
		result.verdict = (enum health_verdict)verdict;
		snprintf(result.text, sizeof(result.text), "%.*s", (int)strcspn(line + end, "\n"), line + end);
		if (check)
			health_state_count(health_state_entry(turn->state, name), check, &result, turn->now, false);
	}
	return health_state_write(turn->state, file);
}

/* Runs checks and counts what they say; a turn and a prolog may do so side by side. */
static int count(struct health_turn *turn, enum mode mode)
{
	const struct health_check *chosen[HEALTH_MOST_CHECKS];
	struct health_result results[HEALTH_MOST_CHECKS];
	scoped_free char *file = text_format("%s/state", turn->folder);

	health_state_read(turn->state, file);
	health_state_keep(turn->state, turn->config);
	size_t n = choose(turn, mode, chosen);
	run_chosen(turn, chosen, n, results);
	if (mode == MODE_PROLOG)
		leave_out(chosen, n, results);
	scoped_fd held = lock(turn->folder, "lock", LOCK_EX);
	health_state_read(turn->state, file);
	health_state_keep(turn->state, turn->config);
	for (size_t i = 0; i < n; i++)
		health_state_count(health_state_entry(turn->state, chosen[i]->name), chosen[i], &results[i], turn->now,
				   mode == MODE_PROLOG);
	return health_state_write(turn->state, file);
}

/* Failures that are not struck out yet are looked at again, a second later. */
static void count_until_certain(struct health_turn *turn)
{
	for (unsigned round = 0; round < HEALTH_MOST_STRIKES; round++) {
		bool certain = true;

		if (count(turn, MODE_START))
			return;
		for (size_t i = 0; i < turn->config->n; i++) {
			const struct health_check *check = &turn->config->checks[i];
			if (check->off)
				continue;
			const struct health_entry *entry = health_state_entry(turn->state, check->name);
			certain = certain && (entry->verdict != HEALTH_FAILED || entry->sick || round >= check->strikes);
		}
		if (certain)
			return;
		sleep(1);
	}
}

/* What changed the state besides verdicts: somebody took the node back. */
static enum health_standing settle(struct health_turn *turn)
{
	scoped_free char *file = text_format("%s/state", turn->folder);
	struct jail_error err = { 0 };
	enum health_standing standing = health_settle(turn, &err);

	if (standing == HEALTH_UNKNOWN)
		complain(&err);
	if (standing == HEALTH_SERVES) {
		scoped_fd held = lock(turn->folder, "lock", LOCK_EX);
		(void)health_state_write(turn->state, file);
	}
	return standing;
}

static int run(struct health_turn *turn, const struct request *request, bool *unfit)
{
	enum health_standing standing = HEALTH_SERVES;
	struct jail_error err = { 0 };

	/* Two at once would count one fault twice. */
	scoped_fd turns = request->mode == MODE_TURN ? lock(turn->folder, "turn", LOCK_EX | LOCK_NB) : -1;
	if (request->mode == MODE_TURN && turns < 0)
		return 0;
	if (request->mode == MODE_START) {
		const struct health_entry *sick;
		char reason[1024];
		count_until_certain(turn);
		if ((sick = health_sick(turn))) {
			health_reason_of(turn, sick, reason, sizeof(reason));
			health_registers_drained(turn, reason);
			puts(reason);
		}
		return 0;
	}
	if (request->mode == MODE_TAKE ? count_given(turn) : count(turn, request->mode)) {
		fprintf(stderr, PROGRAM ": %s: what was found cannot be written: %s; make room in /run\n", turn->folder,
			strerrordesc_np(errno));
		return 1;
	}
	if (!request->offline)
		standing = settle(turn);
	health_tell_metrics(turn, standing);
	*unfit = standing == HEALTH_OURS && health_sick(turn);
	if (request->mode == MODE_PROLOG)
		return 0;
	if (request->mode == MODE_TAKE && standing == HEALTH_OVER_BUDGET && health_sick(turn))
		fprintf(stderr, PROGRAM ": %s is sick by %s and serves: it has drained too many nodes\n", turn->node,
			health_sick(turn)->name);
	/* The comment is the node's own. */
	if (!request->offline && request->mode == MODE_TURN && health_tell_comment(turn, standing, &err))
		complain(&err);
	return 0;
}

/* unfit: whether the node has drained itself, or had. */
static int check_node(const struct request *request, bool *unfit)
{
	struct health_config config;
	struct health_state state = { 0 };
	struct jail_error err = { 0 };
	int there = health_config_read(&config, request->config, request->checks, &err);
	if (there <= 0)
		return there ? complain(&err) : 0;
	scoped_free char *node = node_name(request);
	if (!is_node(node)) {
		fprintf(stderr, PROGRAM ": the node's name is not known; say --node NAME\n");
		return 2;
	}
	scoped_free char *folder = text_format("%s/%s", request->state, node);
	if ((mkdir(request->state, 0700) && errno != EEXIST) || (mkdir(folder, 0700) && errno != EEXIST)) {
		fprintf(stderr, PROGRAM ": %s: %s\n", folder, strerrordesc_np(errno));
		return 1;
	}
	if (request->mode == MODE_SHOW) {
		scoped_free char *file = text_format("%s/state", folder);
		health_state_read(&state, file);
		health_show(&config, &state, node, request->as_json);
		return fflush(stdout) ? 1 : 0;
	}
	struct health_turn turn = { .config = &config, .state = &state, .node = node, .folder = folder, .now = time(NULL),
				    .judged = request->mode == MODE_TAKE };
	int status = run(&turn, request, unfit);
	health_config_free(&config);
	return status;
}

int main(int argc, char **argv)
{
	struct request request;
	bool unfit = false;
	int status = parse_arguments(argc, argv, &request);

	if (status >= 0)
		return status;
	status = check_node(&request, &unfit);
	/* slurmd drains the node of a prolog that fails, whatever the budget: one that cannot look fails no job. */
	return request.mode == MODE_PROLOG ? unfit : status;
}
