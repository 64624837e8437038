/* SPDX-License-Identifier: Apache-2.0 */
/* srun with this library in LD_PRELOAD changes what it tells slurmd to launch, before it is signed with the user's own
 * credential. LAUNCH_JOB=1: it is for a job that there is none of. LAUNCH_AT=N: three bytes at N, from the end if below 0, are 0xff.
 * sbatch with it changes what it submits: SUBMIT_AT=N: the byte at N is 0xff. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define REQUEST_LAUNCH_TASKS 6001
#define REQUEST_SUBMIT_BATCH_JOB 4003
/* The job's number is one of the first fields; later ones are of the credential. */
#define FIRST_FIELDS 64

typedef int (*hash)(char *body, int length, char *kind, int kind_length, void *result);

static void name_no_job(char *body, int length)
{
	const char *job = getenv("SLURM_JOB_ID");
	uint32_t number = job ? __builtin_bswap32((uint32_t)strtoul(job, NULL, 10)) : 0;

	for (int i = 0; i + 4 <= length && i < FIRST_FIELDS; i++)
		if (!memcmp(body + i, &number, sizeof(number))) {
			memcpy(body + i, "\x00\xff\xff\xff", 4);
			return;
		}
}

/* Slurm calls it with the body of each message. */
int hash_g_compute(char *body, int length, char *kind, int kind_length, void *result);
int hash_g_compute(char *body, int length, char *kind, int kind_length, void *result)
{
	hash own = (hash)dlsym(RTLD_NEXT, "hash_g_compute");
	const char *at = getenv("LAUNCH_AT"), *submit_at = getenv("SUBMIT_AT");
	uint16_t type = 0;

	if (kind_length == sizeof(type))
		memcpy(&type, kind, sizeof(type));
	if (type == REQUEST_LAUNCH_TASKS || __builtin_bswap16(type) == REQUEST_LAUNCH_TASKS) {
		int place = at ? atoi(at) : 0;
		place += place < 0 ? length : 0;
		if (getenv("LAUNCH_JOB"))
			name_no_job(body, length);
		if (at && place >= 0 && place + 3 <= length)
			memset(body + place, 0xff, 3);
	}
	if (submit_at && (type == REQUEST_SUBMIT_BATCH_JOB || __builtin_bswap16(type) == REQUEST_SUBMIT_BATCH_JOB) &&
	    atoi(submit_at) < length)
		body[atoi(submit_at)] = (char)0xff;
	return own(body, length, kind, kind_length, result);
}
