/* SPDX-License-Identifier: Apache-2.0 */
/* Limits how long slurmstepd waits for srun and sattach that do not answer. guards.c calls it. */
#define _GNU_SOURCE
#include "silent_clients.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <string.h>

#include "native/base/clock.h"
#include "spank_jail/guards/common/imported_functions.h"

/* Seconds for all of a step's clients together. One that answers takes milliseconds; Slurm waits for an answer as long as
 * MessageTimeout, and tries six times. With what else a step may take to end it stays below UnkillableStepTimeout. */
#define MOST_IN_VAIN_S 180

static int (*send_to_one)(void *message, int *answer, int timeout);
static atomic_long waited_s;

/* In place of slurm_send_recv_rc_msg_only_one in slurmstepd. To others than clients it gives a time limit. Success where nobody
 * is told: Slurm would try again, with pauses, for each client. */
static int tell_client(void *message, int *answer, int timeout)
{
	if (timeout)
		return send_to_one(message, answer, timeout);
	if (waited_s >= MOST_IN_VAIN_S) {
		*answer = 0;
		return 0;
	}
	long start = clock_s();
	int result = send_to_one(message, answer, timeout);
	if (result)
		waited_s += clock_s() - start;
	return result;
}

int jail_clients_guard(struct jail_error *err)
{
	const struct link_map *stepd = jail_imports_program();
	void *found = dlsym(RTLD_DEFAULT, "slurm_send_recv_rc_msg_only_one");
	int missing = stepd && found ? 0 : 1;

	memcpy(&send_to_one, &found, sizeof(found));
	if (!missing)
		missing = jail_imports_replace(stepd, "slurm_send_recv_rc_msg_only_one", (void *)tell_client, err);
	return missing <= 0 ? missing : jail_fail(err, NULL, 0, "this slurmstepd tells srun in an unknown way: users who stop theirs can have "
						  "the node drained");
}
