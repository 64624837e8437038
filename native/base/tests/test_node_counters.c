/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the node's counters: no count is lost when many processes count at a time, and a full disk
 * only loses counts. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "native/base/scoped.h"
#include "native/base/text.h"
#include "native/testing/check.h"
#include "native/base/node_counters.h"

#define STEPS 40

static uint64_t values[JAIL_NODE_COUNTER_COUNT];

static void run_step(const char *file, enum jail_node_counter counter)
{
	jail_node_counters_open(file);
	jail_node_count(counter, 1);
	jail_node_count(JAIL_IMAGE_BYTES_FETCHED, 1000);
	_exit(0);
}

int main(void)
{
	char folder[] = "/var/tmp/node-counters-XXXXXX";
	int ended = 0;
	CHECK(mkdtemp(folder));
	scoped_free char *file = text_format("%s/counters", folder), *link = text_format("%s/link", folder);

	jail_node_count(JAIL_STEPS_ENTERED, 1); /* of no file */
	CHECK(jail_node_counters_read(file, values) == -1 && errno == ENOENT);
	for (int i = 0; i < STEPS; i++)
		if (!fork())
			run_step(file, i % 4 ? JAIL_STEPS_ENTERED : JAIL_STEPS_INSIDE);
	for (int status; wait(&status) > 0; ended++)
		CHECK(WIFEXITED(status) && !WEXITSTATUS(status));
	CHECK(ended == STEPS && !jail_node_counters_read(file, values));
	CHECK(values[JAIL_STEPS_ENTERED] == STEPS * 3 / 4 && values[JAIL_STEPS_INSIDE] == STEPS / 4 && !values[JAIL_STEPS_NODE]);
	CHECK(values[JAIL_IMAGE_BYTES_FETCHED] == STEPS * 1000);

	/* A child of a step's counts nothing: what it would write to is not there. */
	jail_node_counters_open(file);
	if (!fork()) {
		jail_node_count(JAIL_STEPS_SHORTAGE, 1);
		_exit(0);
	}
	CHECK(wait(&ended) > 0 && !ended && !jail_node_counters_read(file, values) && !values[JAIL_STEPS_SHORTAGE]);
	jail_node_count(JAIL_STEPS_SHORTAGE, 1);
	CHECK(!jail_node_counters_read(file, values) && values[JAIL_STEPS_SHORTAGE] == 1);

	CHECK(!truncate(file, 7) && jail_node_counters_read(file, values) == -1 && errno == EBADMSG);
	CHECK(!symlink(file, link));
	jail_node_counters_open(link);
	jail_node_count(JAIL_STEPS_SHORTAGE, 1);
	CHECK(!unlink(link) && !unlink(file) && !rmdir(folder));
	return check_result("node_counters");
}
