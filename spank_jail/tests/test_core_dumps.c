/* SPDX-License-Identifier: Apache-2.0 */
/* Tests how long slurmstepd puts off SIGKILL for processes that write core files. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "native/testing/check.h"
#include "spank_jail/guards/step/core_dumps.h"
#include "spank_jail/guards/common/process_status.h"

#define LARGE (128UL * 1024 * 1024)

static bool dumps(pid_t pid)
{
	char path[64], status[4096];

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	return process_read_status(path, status, sizeof(status)) && strstr(status, "\nCoreDumping:\t1\n");
}

static void test_what_is_not_spared(void)
{
	CHECK(!jail_core_dumps_is_spared("/proc/1/stat", 0) && !jail_core_dumps_is_spared("/proc/4999999/stat", 0));
	CHECK(!jail_core_dumps_is_spared("/proc/self/stat", 0) && !jail_core_dumps_is_spared("/proc//stat", 0));
	CHECK(!jail_core_dumps_is_spared("/etc/passwd", 0) && !jail_core_dumps_is_spared("", 0));
}

/* Into the test's own directory; where the machine gives core files to a program, it may be done before one looks. */
static void test_a_core_file(void)
{
	char directory[] = "/tmp/core-XXXXXX", path[64];
	const struct rlimit all = { RLIM_INFINITY, RLIM_INFINITY };

	CHECK(mkdtemp(directory));
	pid_t child = fork();
	if (!child) {
		char *memory = mmap(NULL, LARGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (memory == MAP_FAILED || setrlimit(RLIMIT_CORE, &all) || chdir(directory))
			_exit(0);
		memset(memory, 1, LARGE);
		signal(SIGABRT, SIG_DFL);
		abort();
	}
	snprintf(path, sizeof(path), "/proc/%d/stat", (int)child);
	while (!waitpid(child, NULL, WNOHANG)) {
		bool before = dumps(child), spared = jail_core_dumps_is_spared(path, 0);
		bool late = jail_core_dumps_is_spared(path, JAIL_CORE_DUMPS_LONGEST_S);
		CHECK(!late && (spared || !before || !dumps(child)));
		usleep(1000);
	}
	pid_t cleaner = fork();
	if (!cleaner)
		execlp("rm", "rm", "-rf", directory, (char *)NULL);
	CHECK(waitpid(cleaner, NULL, 0) == cleaner);
}

int main(void)
{
	test_what_is_not_spared();
	test_a_core_file();
	return check_result("core_dumps");
}
