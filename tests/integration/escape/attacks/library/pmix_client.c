/* SPDX-License-Identifier: Apache-2.0 */
/* pmix-client remove PATH [end] | join: what a process may ask of the PMIx server of a step (PMIx Standard 4.1), by which
 * it finds the server. Linked dynamically: libpmix is the jail's own, and takes geteuid of this program for libc's. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STRING 3
#define ALL_RANKS 4294967294U

struct process {
	char namespace[256];
	uint32_t rank;
};

struct value {
	uint16_t type;
	union {
		char *text;
		char space[24];
	} data;
};

struct info {
	char key[512];
	uint32_t flags;
	struct value value;
};

/* "native" has the other end say who it is. */
uid_t geteuid(void)
{
	const char *said = getenv("SAID_UID");

	return said ? (uid_t)atoi(said) : getuid();
}

gid_t getegid(void)
{
	const char *said = getenv("SAID_UID");

	return said ? (gid_t)atoi(said) : getgid();
}

static volatile int answer = 1;

static void answered(int status, struct info *info, size_t n, void *own, void (*release)(void *), void *theirs)
{
	(void)info;
	(void)n;
	(void)own;
	answer = status;
	if (release)
		release(theirs);
}

static void *function(const char *name)
{
	static void *library;

	if (!library)
		library = dlopen("libpmix.so.2", RTLD_NOW | RTLD_GLOBAL);
	void *found = library ? dlsym(library, name) : NULL;
	if (!found) {
		printf("broken: %s\n", dlerror());
		exit(1);
	}
	return found;
}

/* Of one process, of all, of whoever asks. */
static void ask_for_removal(struct process *own, char *path)
{
	int (*control)(const struct process *, size_t, const struct info *, size_t, void *, void *) = function("PMIx_Job_control_nb");
	struct info info = { .key = "pmix.reg.cleanup", .value = { STRING, { .text = path } } };
	struct process all = *own;

	all.rank = ALL_RANKS;
	struct process *const targets[] = { own, &all, NULL };
	for (size_t i = 0; i < 3; i++) {
		answer = 1;
		int status = control(targets[i], targets[i] ? 1 : 0, &info, 1, answered, NULL);
		for (int tenths = 0; !status && answer == 1 && tenths < 50; tenths++)
			usleep(100000);
		printf("asked: %d, answered: %d\n", status, answer);
	}
	fflush(stdout);
}

int main(int argc, char **argv)
{
	int (*start)(struct process *, void *, size_t) = function("PMIx_Init");
	int (*finish)(void *, size_t) = function("PMIx_Finalize");
	struct process own;

	if (argc < 2)
		return 2;
	int status = start(&own, NULL, 0);
	printf(status ? "refused: %d\n" : "joined: %d\n", status);
	fflush(stdout);
	if (status)
		return 1;
	if (!strcmp(argv[1], "remove") && argc > 2)
		ask_for_removal(&own, argv[2]);
	if (argc > 3)
		kill(getpid(), SIGKILL);
	return finish(NULL, 0) ? 1 : 0;
}
