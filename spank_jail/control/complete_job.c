/* SPDX-License-Identifier: Apache-2.0 */
/* complete-job JOB STATUS: tells slurmctld that a job has ended with STATUS, as wait(2) gives it. end-ended-jobs
 * calls it.
 *
 * JOB is the job's own number, also for a task of an array. srun sends the same when it ends (slurm_complete_job,
 * slurm/slurm.h), but no command of Slurm's does. LD_LIBRARY_PATH must name the folder of Slurm's library.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
#include <stdio.h>
#include <stdlib.h>

#define EXIT_USAGE 2

/* As 22.05 and 24.11 have it, and below as 26.05 has it. */
__attribute__((unused)) static int complete_number(void *function, uint32_t job, uint32_t status)
{
	int (*complete)(uint32_t, uint32_t);

	*(void **)&complete = function;
	return complete(job, status);
}

__attribute__((unused)) static int complete_step_id(void *function, uint32_t job, uint32_t status)
{
	slurm_step_id_t id = {.job_id = job, .step_id = NO_VAL, .step_het_comp = NO_VAL};
	int (*complete)(slurm_step_id_t *, uint32_t);

	*(void **)&complete = function;
	return complete(&id, status);
}

/* As this release's header has it. */
#define complete_job _Generic(&slurm_complete_job, int (*)(uint32_t, uint32_t): complete_number, default: complete_step_id)

static bool parse(const char *text, uint32_t *number)
{
	char *end;

	errno = 0;
	unsigned long value = strtoul(text, &end, 10);
	*number = (uint32_t)value;
	return *text >= '0' && *text <= '9' && !*end && !errno && value <= UINT32_MAX;
}

int main(int argc, char **argv)
{
	const char *(*reason)(int) = NULL;
	void (*start)(const char *) = NULL, *complete = NULL;
	uint32_t job, status;

	if (argc != 3 || !parse(argv[1], &job) || !parse(argv[2], &status) || !job) {
		fputs("usage: complete-job JOB STATUS (numbers; STATUS as of wait(2))\n", stderr);
		return EXIT_USAGE;
	}
	void *library = dlopen("libslurmfull.so", RTLD_NOW | RTLD_GLOBAL);
	if (library) {
		*(void **)&start = dlsym(library, "slurm_init");
		*(void **)&reason = dlsym(library, "slurm_strerror");
		complete = dlsym(library, "slurm_complete_job");
	}
	if (!start || !reason || !complete) {
		fprintf(stderr, "complete-job: %s; set LD_LIBRARY_PATH to Slurm's PluginDir (scontrol show config)\n", dlerror());
		return EXIT_USAGE;
	}
	start(NULL);
	if (complete_job(complete, job, status)) {
		fprintf(stderr, "complete-job: slurmctld does not end job %u: %s\n", job, reason(errno));
		return EXIT_FAILURE;
	}
	return EXIT_SUCCESS;
}
