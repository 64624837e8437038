/* SPDX-License-Identifier: Apache-2.0 */
/* Measures nodes by one job: starts node-speed on them by srun, tells the tasks by their input what to measure, and
 * reads the results. active_checks.c calls it.
 *
 * srun carries both directions, signed by Slurm, so the tasks need no shared directory.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "active.h"
#include "native/base/scoped.h"
#include "native/base/text.h"

#define NODE_SPEED "/usr/libexec/cellblock/node-speed"
/* Of the jail: images/jail-devel compiles it. */
#define GPU_PROGRAM "/usr/libexec/cellblock/gpu-speed"
/* For srun to start its tasks, and besides what a command is to take. */
#define START_S 30
#define SLACK_S 40
/* All-reduce: numbers of the vector, and how often. */
#define REDUCE_COUNT 131072
#define REDUCE_TIMES 8

struct job {
	struct active_node *const *nodes;
	size_t n;
	pid_t pid;
	int input, output;
	size_t place[ACTIVE_MOST_NODES]; /* by rank: which node */
	char hosts[ACTIVE_MOST_NODES][80];
	struct text_buffer heard; /* what is no whole line yet */
};

static int start(struct job *job, struct jail_error *err)
{
	scoped_list words = { 0 };
	scoped_buffer list = { 0 };
	posix_spawn_file_actions_t files;
	int to[2], from[2];

	for (size_t i = 0; i < job->n; i++) {
		text_append_string(&list, i ? "," : "");
		text_append_string(&list, job->nodes[i]->name);
	}
	text_list_add(&words, "srun");
	text_list_add(&words, "--partition=" ACTIVE_PARTITION);
	text_list_add(&words, "--job-name=" ACTIVE_PARTITION);
	text_list_take(&words, text_format("--nodelist=%s", list.text));
	text_list_take(&words, text_format("--nodes=%zu", job->n));
	text_list_take(&words, text_format("--ntasks=%zu", job->n));
	/* A step gets none of those that its job has by having the node to itself. Nodes of one set have as many. */
	if (job->nodes[0]->gpus)
		text_list_take(&words, text_format("--gres=gpu:%u", job->nodes[0]->gpus));
	/* Users' jobs come first: it begins at once, or not at all. */
	for (const char *const *option = (const char *const[]){ "--quiet", "--ntasks-per-node=1", "--mem=0", "--immediate=5",
								"--mpi=none", "--cpu-bind=none", "--unbuffered", "--chdir=/",
								"--time=5", "--export=NONE", "--kill-on-bad-exit=1",
								"--bcast=/run/bcast/node-speed", NODE_SPEED, NULL };
	     *option; option++)
		text_list_add(&words, *option);
	if (pipe2(to, O_CLOEXEC) || pipe2(from, O_CLOEXEC))
		return jail_fail(err, "pipe2", errno, "the job cannot be spoken to");
	posix_spawn_file_actions_init(&files);
	posix_spawn_file_actions_adddup2(&files, to[0], 0);
	posix_spawn_file_actions_adddup2(&files, from[1], 1);
	int number = posix_spawnp(&job->pid, "srun", &files, NULL, words.items, environ);
	posix_spawn_file_actions_destroy(&files);
	close(to[0]);
	close(from[1]);
	job->input = to[1];
	job->output = from[0];
	return number ? jail_fail(err, "posix_spawn", number, "srun cannot be run") : 0;
}

/* The next line, within the time; NULL: the job has ended, or says nothing. The caller frees it. */
static char *next_line(struct job *job, time_t until)
{
	char part[4096], *end;
	ssize_t got;

	while (!job->heard.text || !(end = memchr(job->heard.text, '\n', job->heard.length))) {
		struct pollfd ready = { .fd = job->output, .events = POLLIN };
		long left = (long)(until - time(NULL));
		if (left <= 0 || poll(&ready, 1, (int)left * 1000) <= 0 || (got = read(job->output, part, sizeof(part))) <= 0)
			return NULL;
		text_append(&job->heard, part, (size_t)got);
	}
	size_t length = (size_t)(end - job->heard.text);
	char *line = text_copy(job->heard.text, length);
	memmove(job->heard.text, end + 1, job->heard.length - length);
	job->heard.length -= length + 1;
	job->heard.text[job->heard.length] = 0;
	return line;
}

/* Each task says which node it is on, and where it listens. */
static int meet(struct job *job)
{
	time_t until = time(NULL) + START_S;

	for (size_t heard = 0; heard < job->n; heard++) {
		scoped_free char *line = next_line(job, until);
		char node[ACTIVE_NAME_SIZE], host[80];
		size_t rank;

		if (!line || sscanf(line, "%zu %255s %79[^\n]", &rank, node, host) != 3 || rank >= job->n)
			return -1;
		snprintf(job->hosts[rank], sizeof(job->hosts[rank]), "%s", host);
		job->place[rank] = job->n;
		for (size_t i = 0; i < job->n; i++)
			if (!strcmp(job->nodes[i]->name, node))
				job->place[rank] = i;
		if (job->place[rank] == job->n)
			return -1;
	}
	return 0;
}

/* Of several values the best counts: a pair is as slow as its slower node. */
static void read_answer(struct active_result *result, const char *text)
{
	double value;

	if (*text == '?') {
		result->found = ACTIVE_WRONG;
	} else if (*text == '!' && result->found != ACTIVE_VALUE) {
		result->found = ACTIVE_COULD_NOT;
		snprintf(result->why, sizeof(result->why), "%s", text + 1 + strspn(text + 1, " "));
	} else if (sscanf(text, "%lf", &value) == 1 && result->found != ACTIVE_WRONG) {
		result->value = result->found == ACTIVE_VALUE && result->value > value ? result->value : value;
		result->found = ACTIVE_VALUE;
	}
}

/* Tells all tasks `command`, and takes an answer of each. `kind` ACTIVE_KINDS: answers are not looked at. */
static int command_tasks(struct job *job, enum active_kind kind, const char *command, double seconds)
{
	time_t until = time(NULL) + SLACK_S + (time_t)seconds;

	if (text_write(job->input, command, strlen(command)) || text_write(job->input, "\n", 1))
		return -1;
	for (size_t heard = 0; heard < job->n; heard++) {
		scoped_free char *line = next_line(job, until);
		char *text;

		if (!line)
			return -1;
		size_t rank = strtoul(line, &text, 10);
		if (text == line || rank >= job->n)
			return -1;
		if (kind != ACTIVE_KINDS)
			read_answer(&job->nodes[job->place[rank]]->results[kind], text + strspn(text, " "));
	}
	return 0;
}

static int introduce(struct job *job)
{
	unsigned char secret[16];
	scoped_buffer command = { 0 };
	char digits[3];

	if (getrandom(secret, sizeof(secret), 0) != sizeof(secret))
		return -1;
	text_append_string(&command, "peers ");
	for (size_t i = 0; i < sizeof(secret); i++) {
		snprintf(digits, sizeof(digits), "%02x", secret[i]);
		text_append_string(&command, digits);
	}
	for (size_t rank = 0; rank < job->n; rank++) {
		text_append_string(&command, " ");
		/* One that has none cannot be met; the others go on. */
		text_append_string(&command, strchr(job->hosts[rank], ' ') ? "-" : job->hosts[rank]);
	}
	return command_tasks(job, ACTIVE_KINDS, command.text, 0);
}

/* By rank, which is as good as any order. */
static int measure_pairs(struct job *job, double seconds)
{
	for (size_t round = 0; round < active_rounds(job->n); round++) {
		scoped_buffer command = { 0 };
		scoped_free char *first = text_format("pairs %.1f", seconds);

		text_append_string(&command, first);
		for (size_t rank = 0; rank < job->n; rank++) {
			size_t other = active_partner(rank, round, job->n);
			scoped_free char *pair = other < job->n && other > rank ? text_format(" %zu-%zu", rank, other) : NULL;
			if (pair)
				text_append_string(&command, pair);
		}
		if (command_tasks(job, ACTIVE_PAIRS, command.text, seconds))
			return -1;
	}
	return 0;
}

static int measure_job(struct job *job, const struct health_config *config)
{
	const double processor = active_setting(config, ACTIVE_PROCESSOR, "seconds", 2);
	const double memory = active_setting(config, ACTIVE_MEMORY, "seconds", 2);
	const double gpu = active_setting(config, ACTIVE_GPU, "seconds", 60);
	const double pair = active_setting(config, ACTIVE_PAIRS, "seconds", 1);
	scoped_free char *first = text_format("processor %.1f", processor), *second = text_format("memory %.1f", memory);
	scoped_free char *third = text_format("disk %.0f %s", active_setting(config, ACTIVE_DISK, "mb", 64),
					      active_word(config, ACTIVE_DISK, "place", "/tmp"));
	scoped_free char *gpus = text_format("gpu %.0f %s", gpu, active_word(config, ACTIVE_GPU, "program", GPU_PROGRAM));
	scoped_free char *last = text_format("reduce %d %d", REDUCE_COUNT, REDUCE_TIMES);
#define ON(kind) health_config_find(config, active_names[kind])
	if (meet(job) || (ON(ACTIVE_PROCESSOR) && command_tasks(job, ACTIVE_PROCESSOR, first, processor)) ||
	    (ON(ACTIVE_MEMORY) && command_tasks(job, ACTIVE_MEMORY, second, memory)) ||
	    (ON(ACTIVE_DISK) && command_tasks(job, ACTIVE_DISK, third, 0)))
		return -1;
	if (job->nodes[0]->gpus && ON(ACTIVE_GPU) && command_tasks(job, ACTIVE_GPU, gpus, gpu))
		return -1;
	if (job->n < 2 || introduce(job))
		return job->n < 2 ? 0 : -1;
	if ((ON(ACTIVE_PAIRS) && measure_pairs(job, pair)) || (ON(ACTIVE_REDUCE) && command_tasks(job, ACTIVE_REDUCE, last, 0)))
		return -1;
	return 0;
}

int active_measure(struct active_node *const *chosen, size_t n, const struct health_config *config, struct jail_error *err)
{
	struct job job = { .nodes = chosen, .n = n, .input = -1, .output = -1 };
	int status;

	signal(SIGPIPE, SIG_IGN);
	if (start(&job, err))
		return -1;
	int failed = measure_job(&job, config);
	close(job.input);
	/* srun ends its job then. */
	if (failed)
		kill(job.pid, SIGTERM);
	while (waitpid(job.pid, &status, 0) < 0 && errno == EINTR)
		;
	close(job.output);
	text_buffer_free(&job.heard);
	return failed ? 0 : 1;
}
