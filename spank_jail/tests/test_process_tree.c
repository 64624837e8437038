/* SPDX-License-Identifier: Apache-2.0 */
/* What proctrack/linuxproc reads of processes. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "native/testing/check.h"
#include "spank_jail/guards/process_tree.h"

static char line[2048];

static const char *corrected(const char *text)
{
	snprintf(line, sizeof(line), "%s", text);
	jail_process_tree_correct(line, strlen(line));
	return line;
}

static const char *stat_of(pid_t pid)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	FILE *file = fopen(path, "re");
	size_t got = file ? fread(line, 1, sizeof(line) - 1, file) : 0;
	if (file)
		fclose(file);
	line[got] = '\0';
	jail_process_tree_correct(line, got);
	return line;
}

static void test_names(void)
{
	CHECK(!strcmp(corrected("12 (sleep) S 7 7 7"), "12 (sleep) S 7 7 7"));
	CHECK(!strcmp(corrected("12 (a) S 1 (b\n) R 7 7"), "12 (a__S_1__b_) R 7 7"));
	/* No such process, so nobody's. */
	CHECK(!strcmp(corrected("4999999 (slurmstepd) S 7 7 7"), "4999999 (slurmstepd) S 7 7 7"));
}

static void test_what_is_no_stat_stays(void)
{
	const char *const others[] = { "", "(", ")", "1 (", "1 ()", "1 () ", "slurmstepd: [1.0]", "(a b) S", "x (a b) S 1", ") 1 ( S",
				       "12345678 (a b) S 1", "1(a b) S 1" };

	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		CHECK(!strcmp(corrected(others[i]), others[i]));
}

/* In a process of its own, whose leader then ends. */
static void *wait_thread(void *unused)
{
	(void)unused;
	pause();
	return NULL;
}

static void test_a_dead_leader(void)
{
	pid_t child = fork();

	if (!child) {
		pthread_t thread;
		if (pthread_create(&thread, NULL, wait_thread, NULL))
			_exit(1);
		syscall(SYS_exit, 0);
	}
	usleep(200000);
	CHECK(strstr(stat_of(child), ") S "));
	CHECK(!kill(child, 9) && waitpid(child, NULL, 0) == child);
}

static void test_the_dead(void)
{
	pid_t child = fork();

	if (!child)
		_exit(0);
	usleep(200000);
	CHECK(strstr(stat_of(child), ") Z "));
	CHECK(waitpid(child, NULL, 0) == child);
}

/* What a tracer, that is not its parent, keeps. */
static void test_the_dead_that_is_traced(void)
{
	pid_t child = fork();

	if (!child)
		for (;;)
			pause();
	pid_t tracer = fork();
	if (!tracer) {
		(void)ptrace(PTRACE_SEIZE, child, NULL, NULL);
		for (;;)
			pause();
	}
	usleep(200000);
	CHECK(!kill(child, 9));
	usleep(200000);
	CHECK(strstr(stat_of(child), ") S "));
	CHECK(!kill(tracer, 9) && waitpid(tracer, NULL, 0) == tracer && waitpid(child, NULL, 0) == child);
}

static void test_a_user_that_is_called_as_slurmstepd(void)
{
	pid_t child = fork();

	if (!child) {
		(void)prctl(PR_SET_NAME, "slurmstepd");
		if (geteuid() == 0 && (setresuid(12345, 12345, 12345)))
			_exit(1);
		for (;;)
			pause();
	}
	usleep(200000);
	CHECK(strstr(stat_of(child), "(_lurmstepd)"));
	CHECK(!kill(child, 9) && waitpid(child, NULL, 0) == child);
}

int main(void)
{
	test_names();
	test_what_is_no_stat_stays();
	test_a_dead_leader();
	test_the_dead();
	test_the_dead_that_is_traced();
	test_a_user_that_is_called_as_slurmstepd();
	return check_result("process_tree");
}
