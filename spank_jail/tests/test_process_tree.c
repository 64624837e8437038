/* SPDX-License-Identifier: Apache-2.0 */
/* Tests what the guard of proctrack/linuxproc shows it of a user's processes. */
#define _GNU_SOURCE
#include <grp.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "native/testing/check.h"
#include "spank_jail/guards/step/bounded_look.h"
#include "spank_jail/guards/common/process_status.h"
#include "spank_jail/guards/step/process_tree.h"

static char line[2048];

static const char *stat_for(const char *status)
{
	line[jail_process_tree_stat(status, line, sizeof(line))] = '\0';
	return line;
}

static const char *stat_of(pid_t pid)
{
	char path[64], status[4096];

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	return stat_for(process_read_status(path, status, sizeof(status)) ? status : "");
}

static void test_names(void)
{
	CHECK(!strcmp(stat_for("Name:\tsleep\nState:\tS (sleeping)\nPid:\t12\nPPid:\t7\n"), "12 (sleep) S 7"));
	CHECK(!strcmp(stat_for("Name:\ta) S 1 (b\\n\nState:\tR (running)\nPid:\t12\nPPid:\t7\n"), "12 (a__S_1__b\\n) R 7"));
	/* No such process, so nobody's. */
	CHECK(!strcmp(stat_for("Name:\tslurmstepd\nState:\tS\nPid:\t4999999\nPPid:\t7\n"), "4999999 (slurmstepd) S 7"));
}

static void test_what_is_no_status(void)
{
	const char *const others[] = { "", "Name:\t", "Name:\ta\n", "Name:\ta\nPid:\t1\n", "slurmstepd: [1.0]", "1 (a) S 1" };

	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		CHECK(!*stat_for(others[i]));
}

/* Groups without end do not hide what comes after them. */
static void test_many_groups(void)
{
	static gid_t groups[20000];
	char path[64], status[4096];
	pid_t child = geteuid() ? 0 : fork();

	if (geteuid())
		return;
	if (!child) {
		for (size_t i = 0; i < sizeof(groups) / sizeof(groups[0]); i++)
			groups[i] = (gid_t)i + 100000;
		if (setgroups(sizeof(groups) / sizeof(groups[0]), groups))
			_exit(1);
		for (;;)
			pause();
	}
	usleep(200000);
	snprintf(path, sizeof(path), "/proc/%d/status", (int)child);
	CHECK(process_read_status(path, status, sizeof(status)) && process_number(status, "\nThreads:\t") == 1);
	/* A smaller buffer has the beginning of that, and nothing behind its end. */
	for (size_t size = 1; size < 600; size++) {
		char *part = malloc(size);
		size_t length = process_read_status(path, part, size);
		CHECK(length == size - 1 && !memcmp(part, status, length) && !part[length]);
		free(part);
	}
	CHECK(!kill(child, 9) && waitpid(child, NULL, 0) == child);
}

static bool look_forever(const void *unused)
{
	(void)unused;
	for (;;)
		pause();
	return true;
}

static bool look_at_number(const void *number)
{
	return *(const int *)number;
}

static void test_looks_end(void)
{
	CHECK(bounded_look(look_at_number, &(int){ 1 }) == 1 && bounded_look(look_at_number, &(int){ 0 }) == 0);
	CHECK(bounded_look(look_forever, NULL) == -1);
	/* Nothing is left to wait for. */
	CHECK(waitpid(-1, NULL, __WALL) == -1);
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
	test_what_is_no_status();
	test_many_groups();
	test_looks_end();
	test_a_dead_leader();
	test_the_dead();
	test_the_dead_that_is_traced();
	test_a_user_that_is_called_as_slurmstepd();
	return check_result("process_tree");
}
