/* SPDX-License-Identifier: Apache-2.0 */
/* Tests which nodes are measured together, and which measured values make a node sick. */
#include <stdlib.h>
#include <string.h>

#include "native/testing/check.h"
#include "spank_jail/active/active.h"

/* In each round each has one partner, which has it; in different rounds others. */
static void test_partners(void)
{
	for (size_t n = 2; n <= ACTIVE_MOST_NODES; n++) {
		size_t most = n % 2 ? n : n - 1;
		CHECK(active_rounds(n) <= most);
		for (size_t me = 0; me < n; me++) {
			bool met[ACTIVE_MOST_NODES] = { false };
			size_t rests = 0;
			for (size_t round = 0; round < most; round++) {
				size_t other = active_partner(me, round, n);
				rests += other == n;
				CHECK(other != me && (other == n || active_partner(other, round, n) == me));
				CHECK(other == n || !met[other]);
				if (other < n)
					met[other] = true;
			}
			CHECK(rests == n % 2);
		}
	}
	CHECK(active_rounds(8) == 3 && active_rounds(5) == 3 && active_rounds(4) == 2 && active_rounds(64) == 6);
}

/* Every pair that the slow node is in is slow, and of `n` nodes each has a best value of one that is not. */
static void test_the_slow_one_is_named(void)
{
	struct health_config config = { 0 };

	for (size_t n = ACTIVE_LEAST_TO_COMPARE; n <= 16; n++)
		for (size_t slow = 0; slow < n; slow++) {
			struct active_node items[16] = { 0 };
			struct active_nodes nodes = { items, n };
			for (size_t round = 0; round < active_rounds(n); round++)
				for (size_t me = 0; me < n; me++) {
					size_t other = active_partner(me, round, n);
					double value = me == slow || other == slow ? 10 : 100;
					if (other == n || items[me].results[ACTIVE_PAIRS].value > value)
						continue;
					items[me].results[ACTIVE_PAIRS] = (struct active_result){ .found = ACTIVE_VALUE, .value = value };
				}
			for (size_t me = 0; me < n; me++) {
				char *line = active_judge(&nodes, &items[me], ACTIVE_PAIRS, &config);
				CHECK(!strncmp(line, me == slow ? "pair-speed F 10 MB" : "pair-speed P 100", 16));
				free(line);
			}
		}
}

static void judged(enum active_found found, double value, const char *start)
{
	struct active_node items[5] = { 0 };
	struct active_nodes nodes = { items, 5 };
	struct health_config config = { 0 };

	for (size_t i = 0; i < 3; i++)
		items[i].remembered[ACTIVE_MEMORY] = 1000;
	/* Another set's. */
	items[3].remembered[ACTIVE_MEMORY] = 9000;
	strcpy(items[3].set, "large");
	items[4].results[ACTIVE_MEMORY] = (struct active_result){ .found = found, .value = value, .why = "why" };
	char *line = active_judge(&nodes, &items[4], ACTIVE_MEMORY, &config);
	CHECK(start ? line && !strncmp(line, start, strlen(start)) : !line);
	free(line);
}

static void test_verdicts(void)
{
	judged(ACTIVE_NOTHING, 0, NULL);
	judged(ACTIVE_COULD_NOT, 0, "memory-speed C why");
	judged(ACTIVE_WRONG, 0, "memory-speed F it computes, keeps or sends wrong");
	judged(ACTIVE_VALUE, 499, "memory-speed F 499 MB a second; the median of 4 nodes is 1000");
	judged(ACTIVE_VALUE, 501, "memory-speed P 501");

	/* Without a GPU, where the cluster has some; and where it has none. */
	struct health_config gpus = { 0 };
	struct active_node none = { 0 }, some = { .gpus = 4 };
	struct active_nodes alone = { &none, 1 };
	char table[] = "check gpu-speed share=70\ncheck disk-speed floor=20\n";
	CHECK(!active_judge(&alone, &none, ACTIVE_GPU, &gpus));
	CHECK(!health_config_lines(&gpus, table, "table", &(struct jail_error){ 0 }));
	char *said = active_judge(&alone, &none, ACTIVE_GPU, &gpus);
	CHECK(said && !strcmp(said, "gpu-speed C this node declares no GPU, and is not asked"));
	CHECK(!active_judge(&alone, &some, ACTIVE_GPU, &gpus));
	free(said);
	/* A floor counts without anybody to compare with. */
	none.results[ACTIVE_DISK] = (struct active_result){ .found = ACTIVE_VALUE, .value = 19 };
	said = active_judge(&alone, &none, ACTIVE_DISK, &gpus);
	CHECK(!strcmp(said, "disk-speed F 19 MB a second; the floor is 20"));
	free(said);
	health_config_free(&gpus);

	/* Two nodes say nothing of each other. */
	struct active_node two[2] = { { .results[ACTIVE_DISK] = { .found = ACTIVE_VALUE, .value = 1 } },
				      { .results[ACTIVE_DISK] = { .found = ACTIVE_VALUE, .value = 100 } } };
	struct health_config config = { 0 };
	char *line = active_judge(&(struct active_nodes){ two, 2 }, &two[0], ACTIVE_DISK, &config);
	CHECK(!strncmp(line, "disk-speed C there are 2 nodes", 30));
	free(line);
}

int main(void)
{
	test_partners();
	test_the_slow_one_is_named();
	test_verdicts();
	return check_result("active_judge");
}
