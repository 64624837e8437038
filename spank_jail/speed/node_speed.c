/* SPDX-License-Identifier: Apache-2.0 */
/* node-speed: measures a node, or the network between nodes, as a task of a job that active-checks starts by srun. It
 * reads from standard input what to measure, and prints one line for each. active-checks runs it.
 *
 *   processor SECONDS | memory SECONDS | disk MB FOLDER | gpu SECONDS PROGRAM | peers TOKEN ADDRESS:PORT... | pairs SECONDS A-B... |
 *   reduce COUNT TIMES
 *
 * Each answer is "RANK RESULT"; "RANK -" of one that is in no pair, "RANK ! WHY" of one that could not, "RANK ? WHY"
 * of a wrong result.
 *
 * Linked whole: it runs in the jail, whose libraries users may change.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "speed.h"

#define MOST_TASKS 4096

static void answer(const struct speed_peers *peers, double result)
{
	int number = errno;

	if (result >= 0)
		printf("%zu %.3f\n", peers->me, result);
	else
		printf("%zu %c %s\n", peers->me, number == EBADMSG ? '?' : '!', strerrordesc_np(number));
}

static double take_peers(struct speed_peers *peers, char *words)
{
	char *word = strtok_r(NULL, " ", &words);

	snprintf(peers->token, sizeof(peers->token), "%s", word ? word : "");
	peers->hosts = calloc(MOST_TASKS, sizeof(*peers->hosts));
	peers->connected = calloc(MOST_TASKS, sizeof(*peers->connected));
	if (!peers->hosts || !peers->connected)
		return -1;
	for (peers->n = 0; peers->n < MOST_TASKS && (word = strtok_r(NULL, " ", &words)); peers->n++) {
		snprintf(peers->hosts[peers->n], sizeof(*peers->hosts), "%s", word);
		peers->connected[peers->n] = -1;
	}
	errno = EPROTO;
	return peers->me < peers->n ? 0 : -1;
}

/* Its own pair of those of this round. */
static void pairs(struct speed_peers *peers, char *words)
{
	char *word = strtok_r(NULL, " ", &words);
	double seconds = word ? atof(word) : 1;
	unsigned long a, b;

	while ((word = strtok_r(NULL, " ", &words)))
		if (sscanf(word, "%lu-%lu", &a, &b) == 2 && (a == peers->me || b == peers->me)) {
			answer(peers, speed_pair(peers, a == peers->me ? b : a, seconds));
			return;
		}
	printf("%zu -\n", peers->me);
}

static void gpus(const struct speed_peers *peers, const char *words)
{
	char program[256], why[200] = "";
	double seconds, result = -1;

	errno = EPROTO;
	if (sscanf(words, "%lf %255s", &seconds, program) == 2)
		result = speed_gpu(program, seconds, why, sizeof(why));
	if (result >= 0 || !*why)
		answer(peers, result);
	else
		printf("%zu %c %s\n", peers->me, errno == EBADMSG ? '?' : '!', why);
}

static void obey(struct speed_peers *peers, char *line)
{
	char *words = line, *command = strtok_r(words, " ", &words);
	unsigned long count;
	unsigned times, mb;
	char folder[256];

	if (!command)
		return;
	errno = EPROTO;
	if (!strcmp(command, "processor"))
		answer(peers, speed_processor(atof(words)));
	else if (!strcmp(command, "memory"))
		answer(peers, speed_memory(atof(words)));
	else if (!strcmp(command, "disk"))
		answer(peers, sscanf(words, "%u %255s", &mb, folder) == 2 ? speed_disk(folder, mb) : -1);
	else if (!strcmp(command, "gpu"))
		gpus(peers, words);
	else if (!strcmp(command, "peers"))
		answer(peers, take_peers(peers, words));
	else if (!strcmp(command, "pairs"))
		pairs(peers, words);
	else if (!strcmp(command, "reduce"))
		answer(peers, sscanf(words, "%lu %u", &count, &times) == 2 ? speed_reduce(peers, count, times) : -1);
	else
		answer(peers, -1);
}

int main(void)
{
	const char *rank = getenv("SLURM_PROCID"), *node = getenv("SLURMD_NODENAME");
	struct speed_peers peers = { .listener = -1, .me = rank ? strtoul(rank, NULL, 10) : 0 };
	char *line = NULL;
	size_t capacity = 0;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (speed_listen(&peers))
		printf("%zu %s ! %s\n", peers.me, node ? node : "-", strerrordesc_np(errno));
	else
		printf("%zu %s %s:%hu\n", peers.me, node ? node : "-", peers.address, peers.port);
	while (getline(&line, &capacity, stdin) > 0) {
		line[strcspn(line, "\n")] = 0;
		obey(&peers, line);
	}
	free(line);
	free(peers.hosts);
	free(peers.connected);
	return 0;
}
