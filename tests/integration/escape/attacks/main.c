/* SPDX-License-Identifier: Apache-2.0 */
/* attack NAME: see attack.h. Linked statically: it runs in the jail of any distribution. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "attack.h"

static void say(const char *outcome, int number, const char *format, va_list arguments)
{
	printf("%s: ", outcome);
	vprintf(format, arguments);
	if (number)
		printf(": %s", strerrorname_np(number));
	printf("\n");
}

void escaped(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	say("escaped", 0, format, arguments);
	va_end(arguments);
	exit(0);
}

void held(const char *format, ...)
{
	int number = errno;
	va_list arguments;

	va_start(arguments, format);
	say("held", number, format, arguments);
	va_end(arguments);
	exit(0);
}

void absent(const char *format, ...)
{
	int number = errno;
	va_list arguments;

	va_start(arguments, format);
	say("absent", number, format, arguments);
	va_end(arguments);
	exit(0);
}

void broken(const char *format, ...)
{
	int number = errno;
	va_list arguments;

	va_start(arguments, format);
	say("broken", number, format, arguments);
	va_end(arguments);
	exit(0);
}

const char *given(const char *name)
{
	const char *value = getenv(name);

	if (!value || !*value) {
		errno = 0;
		broken("the test gives no %s", name);
	}
	return value;
}

long given_number(const char *name)
{
	return strtol(given(name), NULL, 10);
}

void read_canary_at(int fd, const char *prefix)
{
	char path[512], secret[65] = "";

	snprintf(path, sizeof(path), "%s%s", prefix, given("CANARY"));
	int canary = openat(fd, path, O_RDONLY);
	if (canary < 0)
		return;
	if (read(canary, secret, sizeof(secret) - 1) > 0)
		escaped("%s holds %s", path, secret);
	close(canary);
}

void write_back(const char *path)
{
	char text[4096];
	int fd = open(path, O_RDONLY);
	ssize_t length = fd < 0 ? 0 : read(fd, text, sizeof(text));

	if (fd >= 0)
		close(fd);
	fd = open(path, O_WRONLY);
	if (fd < 0 && errno == ENOENT)
		absent("%s", path);
	if (fd < 0)
		held("open %s", path);
	if (length > 0 && write(fd, text, (size_t)length) != length)
		held("write %s", path);
	escaped("%s can be written", path);
}

/* Whether a process is an ordinary user's own, of another step or job: nothing of slurmstepd's, which can become root again. */
static int is_own(pid_t pid)
{
	char path[64], line[256];
	unsigned uids[4] = { 0 };

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	FILE *status = getuid() ? fopen(path, "re") : NULL;
	while (status && fgets(line, sizeof(line), status))
		if (sscanf(line, "Uid: %u %u %u %u", &uids[0], &uids[1], &uids[2], &uids[3]) == 4)
			break;
	if (status)
		fclose(status);
	for (size_t i = 0; i < 4; i++)
		if (!uids[i] || uids[i] != getuid())
			return 0;
	return 1;
}

int is_of_this_job(pid_t pid)
{
	char path[64], own[64];
	char here[256] = "", there[256] = "";

	if (pid == getpid() || pid == getppid() || is_own(pid))
		return 1;
	/* By the mount namespace: who shares ours is in the jail, too. Unreadable: not of this job. */
	snprintf(path, sizeof(path), "/proc/%d/ns/mnt", (int)pid);
	snprintf(own, sizeof(own), "/proc/%d/ns/mnt", (int)getppid());
	return readlink(path, there, sizeof(there) - 1) > 0 && readlink(own, here, sizeof(here) - 1) > 0 &&
	       !strcmp(here, there);
}

int is_own_pid_namespace(void)
{
	char here[64] = "";

	/* By what the test knows of the node. */
	return readlink("/proc/self/ns/pid", here, sizeof(here) - 1) > 0 && strcmp(here, given("NODE_PIDS"));
}

void for_each_outside(void (*visit)(pid_t pid))
{
	DIR *proc = opendir("/proc");

	if (!proc)
		held("opendir /proc");
	for (struct dirent *entry; (entry = readdir(proc));) {
		pid_t pid = (pid_t)strtol(entry->d_name, NULL, 10);
		if (pid > 0 && !is_of_this_job(pid))
			visit(pid);
	}
	closedir(proc);
}

pid_t find_process(const char *name)
{
	pid_t found = 0;
	DIR *proc = opendir("/proc");

	for (struct dirent *entry; proc && (entry = readdir(proc));) {
		char path[300], comm[32] = "";
		snprintf(path, sizeof(path), "/proc/%s/comm", entry->d_name);
		int fd = open(path, O_RDONLY);
		if (fd < 0)
			continue;
		if (read(fd, comm, sizeof(comm) - 1) > 0 && !strcmp(strtok(comm, "\n"), name))
			found = (pid_t)strtol(entry->d_name, NULL, 10);
		close(fd);
	}
	if (proc)
		closedir(proc);
	return found;
}

/* Runs on another node, as it were: swaps two names of the volume until it is ended. */
static _Noreturn void swap(void)
{
	const char *one = given("PATH_A"), *other = given("PATH_B");

	for (;;) {
		if (renameat2(AT_FDCWD, one, AT_FDCWD, other, RENAME_EXCHANGE))
			broken("renameat2 %s %s", one, other);
		usleep(1000); /* about what the mounts of a step's start take */
	}
}

int main(int argc, char **argv)
{
	static const struct attack *const groups[] = {
		proc_attacks, kernel_attacks, mount_attacks, process_attacks, user_namespace_attacks,
		device_attacks, socket_attacks, daemon_attacks, ipc_attacks, privilege_attacks,
		ending_attacks, served_file_attacks, request_attacks,
	};

	if (argc == 2 && !strcmp(argv[1], "swap"))
		swap();
	if (argc > 2 && !strcmp(argv[1], "watch"))
		watch(argc - 2, argv + 2);
	for (size_t i = 0; argc == 2 && i < sizeof(groups) / sizeof(groups[0]); i++)
		for (const struct attack *attack = groups[i]; attack->name; attack++)
			if (!strcmp(attack->name, argv[1])) {
				attack->run();
				errno = 0;
				broken("%s came back without a word", argv[1]);
			}
	errno = 0;
	broken("no attack of this name");
}
