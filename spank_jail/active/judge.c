/* SPDX-License-Identifier: Apache-2.0 */
/* Decides whether a node is too slow, by comparing its measurements with the median of the nodes of its set (nodes of
 * one kind). active_checks.c calls it. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "active.h"
#include "native/base/scoped.h"
#include "native/base/text.h"

const char *const active_names[ACTIVE_KINDS] = { "processor-speed", "memory-speed", "disk-speed", "gpu-speed", "pair-speed",
						      "all-reduce" };

static const char *const units[ACTIVE_KINDS] = { "million turns", "MB", "MB", "GFLOP", "MB", "MB" };

const char *active_word(const struct health_config *config, enum active_kind kind, const char *key, const char *otherwise)
{
	const struct health_check *check = health_config_find(config, active_names[kind]);
	size_t length = strlen(key);

	for (size_t i = 0; check && i < check->arguments.n; i++)
		if (!strncmp(check->arguments.items[i], key, length) && check->arguments.items[i][length] == '=')
			return check->arguments.items[i] + length + 1;
	return otherwise;
}

double active_setting(const struct health_config *config, enum active_kind kind, const char *key, double otherwise)
{
	const char *word = active_word(config, kind, key, NULL);
	char *end;
	double number = word ? strtod(word, &end) : otherwise;

	return word && (end == word || *end || number < 0) ? otherwise : number;
}

static int compare(const void *a, const void *b)
{
	double first = *(const double *)a, second = *(const double *)b;

	return (first > second) - (first < second);
}

/* The last value of each node of the set; -1: too few are known. */
static double median(const struct active_nodes *nodes, const char *set, enum active_kind kind, size_t *known)
{
	double *values = calloc(nodes->n ? nodes->n : 1, sizeof(*values)), found = -1;
	size_t n = 0;

	for (size_t i = 0; i < nodes->n && values; i++) {
		const struct active_node *one = &nodes->items[i];
		if (strcmp(one->set, set))
			continue;
		if (one->results[kind].found == ACTIVE_VALUE)
			values[n++] = one->results[kind].value;
		/* Pairs are of one job: with others, the network was another's. */
		else if (one->remembered[kind] > 0 && kind != ACTIVE_PAIRS)
			values[n++] = one->remembered[kind];
	}
	*known = n;
	if (n >= ACTIVE_LEAST_TO_COMPARE) {
		qsort(values, n, sizeof(*values), compare);
		/* The lower one of two in the middle: what is in doubt is no fault. */
		found = values[(n - 1) / 2];
	}
	free(values);
	return found;
}

char *active_judge(const struct active_nodes *nodes, const struct active_node *node, enum active_kind kind,
		   const struct health_config *config)
{
	const struct active_result *result = &node->results[kind];
	double share = active_setting(config, kind, "share", 50), least = active_setting(config, kind, "floor", 0);
	size_t known;
	double usual = median(nodes, node->set, kind, &known);

	if (kind == ACTIVE_GPU && !node->gpus && health_config_find(config, active_names[kind]))
		return text_format("%s C this node declares no GPU, and is not asked", active_names[kind]);
	if (result->found == ACTIVE_NOTHING)
		return NULL;
	if (result->found == ACTIVE_WRONG)
		return text_format("%s F it computes, keeps or sends wrong: the result is not the right one", active_names[kind]);
	if (result->found == ACTIVE_COULD_NOT)
		return text_format("%s C %s", active_names[kind], result->why);
	/* It is the slowest that all of them see: whose fault it is, pairs tell. */
	if (kind == ACTIVE_REDUCE)
		return text_format("%s P %.0f MB a second", active_names[kind], result->value);
	if (result->value < least)
		return text_format("%s F %.0f %s a second; the floor is %.0f", active_names[kind], result->value, units[kind], least);
	if (usual < 0)
		return text_format("%s C there are %zu nodes of its set to compare, and %d are needed", active_names[kind], known,
				   ACTIVE_LEAST_TO_COMPARE);
	return text_format("%s %c %.0f %s a second; the median of %zu nodes is %.0f", active_names[kind],
			   result->value < usual * share / 100 ? 'F' : 'P', result->value, units[kind], known, usual);
}

size_t active_partner(size_t me, size_t round, size_t n)
{
	size_t even = n + n % 2, turning = even - 1, other;

	if (n < 2)
		return n;
	/* The last one stays where it is, the others turn around it. */
	if (me == turning)
		/* 2 x = round, in whole turns. */
		other = (round * (even / 2)) % turning;
	else
		other = (round + turning * 2 - me) % turning;
	if (other == me)
		other = turning;
	return other < n ? other : n;
}

size_t active_rounds(size_t n)
{
	size_t rounds = 0;

	while (((size_t)1 << rounds) < n)
		rounds++;
	return n == 3 ? 3 : rounds;
}
