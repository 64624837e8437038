/* SPDX-License-Identifier: Apache-2.0 */
/* Tests which nodes are chosen for a measurement: idle ones that were not measured lately. The lines are Slurm
 * 24.11's, shortened. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "native/base/text.h"
#include "native/testing/check.h"
#include "spank_jail/active/active.h"

#define REST " AvailableFeatures=worker,fast NodeAddr=n RealMemory=2711 "
static const char listed[] =
	"NodeName=w1" REST "State=IDLE+DYNAMIC_NORM ThreadsPerCore=1 SlurmdStartTime=1000 Comment=x\n"
	"NodeName=w9" REST "Gres=gpu:a100:4(S:0-1),fpga:2,gpu:1 State=MIXED SlurmdStartTime=1000\n"
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
	CHECK(nodes.n == 7);
	CHECK(nodes.items[1].gpus == 5 && !strcmp(nodes.items[1].set, "worker,fast gpu:5"));
	CHECK(!strcmp(nodes.items[0].name, "w1") && !strcmp(nodes.items[0].set, "worker,fast") && nodes.items[0].started == 1000);
	for (size_t i = 0; i < nodes.n; i++) {
		CHECK(nodes.items[i].idle == (i == 0));
		CHECK(nodes.items[i].drains == (i == 2));
		CHECK(i == 1 || !nodes.items[i].gpus);
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

static void write_file(const char *path, const char *text)
{
	FILE *file = fopen(path, "w");

	CHECK(file && fputs(text, file) >= 0 && !fclose(file));
}

static bool has(const char *path, const char *text)
{
	char *found = text_read(AT_FDCWD, path, 4096, NULL, &(struct jail_error){ 0 });
	bool same = found && !strcmp(found, text);

	free(found);
	return same;
}

static void test_metrics(void)
{
	char root[] = "/tmp/active-XXXXXX";
	struct active_node node[] = { { .name = "w1" }, { .name = "w2" } };
	struct active_nodes nodes = { node, 2 };
	const struct timespec before[2] = { { .tv_sec = 1000 }, { .tv_sec = 1000 } };

	CHECK(mkdtemp(root));
	char *own = text_format("%s/w1", root), *here = text_format("%s/w1/metrics", root), *there = text_format("%s/w1.prom", root);
	char *gone = text_format("%s/none", root), *none = text_format("%s/w2.prom", root);
	CHECK(!mkdir(own, 0700));
	write_file(here, "first\n");
	CHECK(!utimensat(AT_FDCWD, here, before, 0));
	active_tell_metrics(&nodes, root, gone);
	CHECK(access(gone, F_OK));
	active_tell_metrics(&nodes, root, root);
	CHECK(has(there, "first\n") && access(none, F_OK));
	/* What is told is left alone, for ten minutes. */
	write_file(there, "told\n");
	active_tell_metrics(&nodes, root, root);
	CHECK(has(there, "told\n"));
	CHECK(!utimensat(AT_FDCWD, there, before, 0));
	active_tell_metrics(&nodes, root, root);
	CHECK(has(there, "first\n"));
	/* It has changed. */
	write_file(here, "second\n");
	active_tell_metrics(&nodes, root, root);
	CHECK(has(there, "second\n"));
	unlink(here);
	unlink(there);
	rmdir(own);
	rmdir(root);
	free(own);
	free(here);
	free(there);
	free(gone);
	free(none);
}

int main(void)
{
	test_states();
	test_due();
	test_metrics();
	return check_result("active_nodes");
}
