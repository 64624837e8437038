/* SPDX-License-Identifier: Apache-2.0 */
/* Makes srun and salloc tell slurmctld again that their allocation is over, if it did not answer. plugin.c calls it
 * there.
 *
 * Both tell it once and end. If slurmctld ends after it took the connection and before it acted, the allocation would
 * last for ever, for nobody else knows.
 */
#define _GNU_SOURCE
#include "allocation_end.h"

#include <errno.h>
#include <slurm/slurm.h>
#include <slurm/spank.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "failure.h"
#include "native/base/clock.h"
#include "native/base/error.h"
#include "spank_jail/guards/common/imported_functions.h"

/* Seconds for which it is tried again. A slurmctld that is started anew reads its records in that time. */
#define PATIENCE_S 60
/* slurmctld's answers, of Slurm's errors. Below are those of connections, and of the system; above, those of connections that end
 * before an answer, and of munge. What follows from 7000 on is of answers again. */
#define FIRST_ANSWER 2000
#define LAST_ANSWER 4999
#define OTHER_ANSWERS 7000

/* The job's number until 25.11, what points to it since. */
static int (*own_complete)(uintptr_t job, uint32_t status);

static bool is_answer(int number)
{
	return (number >= FIRST_ANSWER && number <= LAST_ANSWER) || number >= OTHER_ANSWERS || number == EINVAL;
}

/* In place of slurm_complete_job. */
static int complete(uintptr_t job, uint32_t status)
{
	int64_t end = clock_s() + PATIENCE_S;
	bool told = false;

	for (;;) {
		int result = own_complete(job, status);
		int number = errno;

		if (!result || is_answer(number) || clock_s() >= end) {
			errno = number;
			return result;
		}
		if (!told)
			slurm_info(JAIL_LOG_NAME "slurmctld did not answer that the job is over: it is told again, for %d seconds",
				   PATIENCE_S);
		told = true;
		const struct timespec pause = { .tv_sec = 1 };

		(void)nanosleep(&pause, NULL);
	}
}

void jail_allocation_end_tell(void)
{
	struct jail_error err;
	const struct link_map *program = jail_imports_program();

	if (program && !own_complete && jail_imports_wrap(program, "slurm_complete_job", (void *)complete, &own_complete, &err) < 0)
		(void)jail_failure_report(&err);
}
