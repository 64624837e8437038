/* SPDX-License-Identifier: Apache-2.0 */
/* Implements `enroot list`: prints the containers (unpacked root file systems) and, with -f, the processes in
 * them. main.c calls it. */
#define _GNU_SOURCE
#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "native/base/scoped.h"
#include "native/base/report.h"
#include "command.h"
#include "options.h"
#include "processes.h"
#include "staging.h"

static void print_time(const struct process *process)
{
	long ticks = sysconf(_SC_CLK_TCK);
	struct timespec now, up;
	char started[32] = "", used[32];
	struct tm tm;

	clock_gettime(CLOCK_REALTIME, &now);
	clock_gettime(CLOCK_BOOTTIME, &up);
	time_t begun = now.tv_sec - (up.tv_sec - (time_t)(process->started / (unsigned long long)ticks));
	if (localtime_r(&begun, &tm))
		strftime(started, sizeof(started), now.tv_sec - begun < 86400 ? "%H:%M:%S" : "%b%d", &tm);
	unsigned long long seconds = process->used / (unsigned long long)ticks;
	snprintf(used, sizeof(used), "%02llu:%02llu:%02llu", seconds / 3600, seconds / 60 % 60, seconds % 60);
	printf("%-8s  %-8s  ", started, used);
}

static void print_process(const char *name, int width, const struct process *process)
{
	struct jail_error ignored;
	size_t length = 0;
	/* What others may write, where root asks. */
	scoped_free char *shown = jail_one_line(text_copy(name, strlen(name)));

	if (!process) {
		puts(shown);
		return;
	}
	scoped_free char *path = text_format("/proc/%ld/cmdline", process->pid);
	scoped_free char *line = text_read(AT_FDCWD, path, 1024 * 1024, &length, &ignored);
	scoped_free char *comm = text_copy(process->comm, strlen(process->comm));
	printf("%-*s  %-7ld  %-15s  %-5c  ", width, shown, process->pid, jail_one_line(comm), process->state);
	print_time(process);
	printf("%-10lu  %-10lu  ", (unsigned long)process->mounts, (unsigned long)process->users);
	for (size_t i = 0; line && i + 1 < length; i++)
		putchar(iscntrl((unsigned char)line[i]) ? ' ' : line[i]);
	putchar('\n');
}

static void print_fancy(int data, const struct text_list *names)
{
	struct processes processes;
	struct stat root;
	int width = 4;

	processes_find(&processes);
	for (size_t i = 0; i < names->n; i++)
		if ((int)strlen(names->items[i]) > width)
			width = (int)strlen(names->items[i]);
	for (size_t i = 0; i < processes.n; i++)
		if (processes.items[i].image && (int)strlen(processes.items[i].image) > width)
			width = (int)strlen(processes.items[i].image);
	printf("%-*s  %-7s  %-15s  %-5s  %-8s  %-8s  %-10s  %-10s  %s\n", width, "NAME", "PID", "COMM", "STATE", "STARTED",
	       "TIME", "MNTNS", "USERNS", "COMMAND");
	for (size_t i = 0; i < names->n; i++) {
		bool running = false;
		if (fstatat(data, names->items[i], &root, 0))
			continue;
		for (size_t j = 0; j < processes.n; j++)
			if (processes.items[j].device == root.st_dev && processes.items[j].inode == root.st_ino) {
				print_process(names->items[i], width, &processes.items[j]);
				running = true;
			}
		if (!running)
			print_process(names->items[i], width, NULL);
	}
	/* Image files have no name here but their path. */
	for (size_t i = 0; i < processes.n; i++)
		if (processes.items[i].image)
			print_process(processes.items[i].image, width, &processes.items[i]);
	processes_free(&processes);
}

int command_list(int argc, char **argv)
{
	struct settings settings;
	struct jail_error err;
	scoped_list names = { 0 };
	bool fancy = false;
	const struct command_option options[] = { { .name = "fancy", .letter = 'f', .flag = &fancy }, { .name = NULL } };
	int first, status = command_options(argc, argv, options, OPTIONS_ANYWHERE, &first);

	if (status >= 0)
		return status;
	if (first != argc)
		return command_usage("list", "it takes no names");
	if (command_settings(&settings, NULL))
		return 1;
	int data = staging_data(&settings, &err);
	if (data < 0)
		return report_failure(&err);
	DIR *stream = fdopendir(data);
	for (struct dirent *entry; stream && (entry = readdir(stream));)
		if (entry->d_name[0] != '.' && (entry->d_type == DT_DIR || entry->d_type == DT_UNKNOWN))
			text_list_add(&names, entry->d_name);
	text_list_sort(&names);
	if (fancy)
		print_fancy(data, &names);
	for (size_t i = 0; !fancy && i < names.n; i++)
		puts(names.items[i]);
	if (stream)
		closedir(stream);
	return 0;
}
