/* SPDX-License-Identifier: Apache-2.0 */
/* Refuses requests to slurmctld that name more jobs than any command of Slurm's sends. job_submit_jail.c calls it.
 *
 * slurmctld does something for each job that a request names, with its locks held, even if it is the same job again:
 * a request of 4 MB took five seconds and 1.4 GB. The same goes for a job with many components.
 */
#define _GNU_SOURCE
#include "long_requests.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

#include "spank_jail/guards/common/imported_functions.h"
#include "slurm_buffer.h"

#define ERROR (-1)
#define TRIED 64

/* By the numbers of Slurm's protocol, which stay what they are. */
enum {
	REQUEST_JOB_INFO = 2003,
	REQUEST_TRIGGER_SET = 2017,
	REQUEST_SHARE_INFO = 2022,
	REQUEST_PRIORITY_FACTORS = 2026,
	REQUEST_TRIGGER_PULL = 2030,
	REQUEST_ASSOC_MGR_INFO = 2043,
	REQUEST_JOB_STATE = 2057,
	REQUEST_HET_JOB_ALLOCATION = 4025,
	REQUEST_SUBMIT_BATCH_HET_JOB = 4028,
	REQUEST_CTLD_MULT_MSG = 4500,
	REQUEST_JOB_STEP_CREATE = 5001,
	REQUEST_KILL_JOBS = 5041,
};

/* Slurm's header (header_t), as it begins. */
struct header {
	uint16_t version, flags, type;
};

static const struct bound {
	uint16_t type;
	/* Bytes; 0: no bound. */
	uint32_t longest;
	/* Of the number that comes first. 0: none does. */
	uint16_t most;
} bounds[] = {
	/* A job has 4 bytes; commands ask for one, or for all. */
	{ REQUEST_JOB_INFO, 4096, 0 },
	/* 4 bytes for each job and user, with 22.05; later ones name none. */
	{ REQUEST_PRIORITY_FACTORS, 16384, 0 },
	/* Names of users, accounts and QOSs, each of which is compared with each association. */
	{ REQUEST_ASSOC_MGR_INFO, 16384, 0 },
	{ REQUEST_SHARE_INFO, 16384, 0 },
	/* Lists of what takes far more room than in the message; users have none of them. */
	{ REQUEST_TRIGGER_SET, 16384, 0 },
	{ REQUEST_TRIGGER_PULL, 16384, 0 },
	{ REQUEST_CTLD_MULT_MSG, 16384, 0 },
	/* 12 bytes for each job, of which one can stand for all that there are. */
	{ REQUEST_JOB_STATE, 16384, 0 },
	/* srun's arguments among them; they are part of slurmctld's records, as the texts of jobs are. */
	{ REQUEST_JOB_STEP_CREATE, 131072, 0 },
	/* Texts, of which one can stand for a thousand tasks. */
	{ REQUEST_KILL_JOBS, 32768, 0 },
	/* MAX_HET_JOB_COMPONENTS of Slurm's commands. */
	{ REQUEST_HET_JOB_ALLOCATION, 0, 128 },
	{ REQUEST_SUBMIT_BATCH_HET_JOB, 0, 128 },
};

/* Of the header that this thread has read last; 0 when its body has been read. */
static _Thread_local uint16_t type_to_come;
/* The library's. */
static int (*own_header)(void *header, void *buffer);
static int (*own_body)(void *message, void *buffer);

bool jail_long_requests_is_one(uint16_t type, const unsigned char *body, uint32_t size)
{
	for (size_t i = 0; i < sizeof(bounds) / sizeof(bounds[0]); i++) {
		const struct bound *bound = &bounds[i];
		uint16_t first = 0;
		if (bound->type != type)
			continue;
		if (bound->most && size >= sizeof(first))
			memcpy(&first, body, sizeof(first));
		return (bound->longest && size > bound->longest) || ntohs(first) > bound->most;
	}
	return false;
}

/* In place of unpack_header and unpack_msg of Slurm. */
static int read_header(void *header, void *buffer)
{
	int number = own_header(header, buffer);

	type_to_come = number ? 0 : ((struct header *)header)->type;
	return number;
}

static int read_body(void *message, void *buffer)
{
	const struct slurm_buffer *unread = buffer;
	uint16_t type = type_to_come;

	/* Messages within messages have none. */
	type_to_come = 0;
	if (type && unread->processed <= unread->size &&
	    jail_long_requests_is_one(type, (unsigned char *)unread->head + unread->processed, unread->size - unread->processed))
		return ERROR;
	return own_body(message, buffer);
}

/* Whether buffers are what is expected here. */
static bool knows_buffers(void)
{
	void *(*make)(uint32_t) = NULL;
	void (*end)(void *) = NULL, (*write)(uint32_t, void *) = NULL;
	const struct {
		const char *name;
		void *function;
	} functions[] = { { "init_buf", &make }, { "free_buf", &end }, { "pack32", &write } };

	for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
		void *found = dlsym(RTLD_DEFAULT, functions[i].name);
		if (!found)
			return false;
		memcpy(functions[i].function, &found, sizeof(found));
	}
	struct slurm_buffer *tried = make(TRIED);
	if (!tried)
		return false;
	bool known = tried->magic == SLURM_BUFFER_MAGIC && tried->size == TRIED && !tried->processed;
	write(htonl(SLURM_BUFFER_MAGIC), tried);
	known = known && tried->processed == sizeof(uint32_t) &&
		!memcmp(tried->head, &(uint32_t){ SLURM_BUFFER_MAGIC }, sizeof(uint32_t));
	end(tried);
	return known;
}

int jail_long_requests_guard(const struct link_map *library, struct jail_error *err)
{
	if (!library || !knows_buffers())
		return 1;
	int missing = jail_imports_wrap(library, "unpack_header", (void *)read_header, &own_header, err);

	return missing ? missing : jail_imports_wrap(library, "unpack_msg", (void *)read_body, &own_body, err);
}
