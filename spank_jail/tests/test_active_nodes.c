/* SPDX-License-Identifier: Apache-2.0 */
/* Which nodes are idle, and which are due, by what slurmctld says and by what is remembered. Lines as Slurm 24.11 prints them, shortened. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "native/base/text.h"
#include "native/testing/check.h"
#include "spank_jail/active/active.h"

#define REST " AvailableFeatures=worker,fast NodeAddr=n RealMemory=2711 "
static const char listed[] =
	"NodeName=w1" REST "State=IDLE+DYNAMIC_NORM ThreadsPerCore=1 SlurmdStartTime=1000 Comment=x\n"
	"NodeName=w2" REST "State=IDLE+DRAIN+DYNAMIC_NORM SlurmdStartTime=1000 Reason=mine State=IDLE \n"
	"NodeName=w3" REST "State=MIXED+DYNAMIC_NORM SlurmdStartTime=1000\n"
	"NodeName=w4" REST "State=IDLE+COMPLETING+DYNAMIC_NORM SlurmdStartTime=1000\n"
	"NodeName=w5" REST "State=IDLE+PLANNED SlurmdStartTime=1000\n"
	"NodeName=w6" REST "State=IDLE+CLOUD+POWERED_DOWN SlurmdStartTime=None\n"
	"NodeName=../w7" REST "State=IDLE SlurmdStartTime=1000\n"
	"NodeName=.w8" REST "State=IDLE SlurmdStartTime=1000\n";

static void test_states(void)
{
	struct active_nodes nodes = { 0 };
	char *text = text_copy(listed, strlen(listed));

	active_parse(&nodes, text);
	CHECK(nodes.n == 6);
	CHECK(!strcmp(nodes.items[0].name, "w1") && !strcmp(nodes.items[0].set, "worker,fast") && nodes.items[0].started == 1000);
	for (size_t i = 0; i < nodes.n; i++) {
		CHECK(nodes.items[i].idle == (i == 0));
		CHECK(nodes.items[i].drains == (i == 1));
	}
	free(nodes.items);
	free(text);
}

static bool is_due(const char *state, long long started, bool drains, long long now)
{
	struct active_node node = { .name = "w1", .started = started, .drains = drains };
	struct active_nodes nodes = { &node, 1 };

	active_recall(&nodes, state, now, 3600);
	return node.due;
}

static void test_due(void)
{
	char state[] = "/tmp/active-XXXXXX";
	struct active_node node = { .name = "w1", .results[ACTIVE_DISK] = { .found = ACTIVE_VALUE, .value = 12.5 } };
	long long now = (long long)time(NULL);

	CHECK(mkdtemp(state));
	char *folder = text_format("%s/w1", state), *values = text_format("%s/values", folder);
	/* It is new. */
	CHECK(is_due(state, 1000, false, now));
	/* Drained, and taken back. */
	CHECK(is_due(state, 1000, true, now));
	active_remember(&node, state);
	CHECK(!is_due(state, 1000, false, now));
	CHECK(is_due(state, 1000, true, now) && is_due(state, 1000, false, now));
	active_remember(&node, state);
	CHECK(!is_due(state, 1000, false, now));
	/* Started again; not looked at for long; a clock that went back. */
	CHECK(is_due(state, now + 5, false, now) && is_due(state, 1000, false, now + 3600) && is_due(state, 1000, false, now - 60));
	/* In doubt. */
	node.due = true;
	active_remember(&node, state);
	CHECK(is_due(state, 1000, false, now));
	struct active_nodes nodes = { &node, 1 };
	active_recall(&nodes, state, now, 3600);
	CHECK(node.remembered[ACTIVE_DISK] > 12.4 && node.remembered[ACTIVE_DISK] < 12.6 && node.remembered[ACTIVE_PAIRS] < 0.1);
	unlink(values);
	rmdir(folder);
	rmdir(state);
	free(folder);
	free(values);
}

int main(void)
{
	test_states();
	test_due();
	return check_result("active_nodes");
}
