#define _GNU_SOURCE
#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "../../spank_jail/core/scoped.h"
#include "../text/report.h"
#include "command.h"
#include "staging.h"

/* A process whose root is that of a container. */
struct process {
	long pid;
	unsigned long long started, used; /* clock ticks: since boot, of processor time */
	char state, comm[64];
	dev_t device;                     /* of its root */
	ino_t inode;
	ino_t mounts, users;              /* its namespaces */
};

struct processes {
	struct process *items;
	size_t n;
};

static bool read_status(struct process *process, const char *folder)
{
	struct jail_error ignored;
	scoped_free char *path = text_format("%s/stat", folder);
	scoped_free char *text = text_read(AT_FDCWD, path, 65536, NULL, &ignored);
	char *open = text ? strchr(text, '(') : NULL, *close = text ? strrchr(text, ')') : NULL;
	unsigned long user, system;

	if (!open || !close)
		return false;
	snprintf(process->comm, sizeof(process->comm), "%.*s", (int)(close - open - 1), open + 1);
	/* proc(5): fields 3 (state), 14 and 15 (utime, stime), 22 (starttime). */
	if (sscanf(close + 1, " %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %lu %lu %*s %*s %*s %*s %*s %*s %llu",
		   &process->state, &user, &system, &process->started) != 4)
		return false;
	process->used = user + system;
	return true;
}

static ino_t inode_of(const char *folder, const char *name)
{
	scoped_free char *path = text_format("%s/%s", folder, name);
	struct stat st;

	return stat(path, &st) ? 0 : st.st_ino;
}

/* All processes that one may look at and that have another root: of a mount namespace the one that began first. */
static void find_processes(struct processes *found)
{
	DIR *stream = opendir("/proc");
	struct stat own, root;

	*found = (struct processes){ 0 };
	if (stat("/", &own))
		own = (struct stat){ 0 };
	for (struct dirent *entry; stream && (entry = readdir(stream));) {
		struct process process = { .pid = atol(entry->d_name) };
		scoped_free char *folder = text_format("/proc/%ld", process.pid);
		scoped_free char *link = text_format("%s/root", folder);
		if (process.pid <= 0 || stat(link, &root) || (root.st_dev == own.st_dev && root.st_ino == own.st_ino) ||
		    !read_status(&process, folder))
			continue;
		process.device = root.st_dev;
		process.inode = root.st_ino;
		process.mounts = inode_of(folder, "ns/mnt");
		process.users = inode_of(folder, "ns/user");
		size_t i = 0;
		while (i < found->n && found->items[i].mounts != process.mounts)
			i++;
		if (i < found->n) {
			struct process *known = &found->items[i];
			if (process.started < known->started || (process.started == known->started && process.pid < known->pid))
				*known = process;
			continue;
		}
		struct process *larger = realloc(found->items, (found->n + 1) * sizeof(*larger));
		if (!larger)
			break;
		found->items = larger;
		found->items[found->n++] = process;
	}
	if (stream)
		closedir(stream);
}

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

	if (!process) {
		printf("%s\n", name);
		return;
	}
	scoped_free char *path = text_format("/proc/%ld/cmdline", process->pid);
	scoped_free char *line = text_read(AT_FDCWD, path, 1024 * 1024, &length, &ignored);
	printf("%-*s  %-7ld  %-15s  %-5c  ", width, name, process->pid, process->comm, process->state);
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

	find_processes(&processes);
	for (size_t i = 0; i < names->n; i++)
		if ((int)strlen(names->items[i]) > width)
			width = (int)strlen(names->items[i]);
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
	free(processes.items);
}

int command_list(int argc, char **argv)
{
	static const struct option options[] = { { "fancy", no_argument, NULL, 'f' }, { "help", no_argument, NULL, 'h' },
						 { NULL, 0, NULL, 0 } };
	struct settings settings;
	struct jail_error err;
	scoped_list names = { 0 };
	bool fancy = false;
	int option;

	optind = 0;
	opterr = 0;
	while ((option = getopt_long(argc, argv, ":fh", options, NULL)) != -1) {
		if (option == 'h')
			return command_describe("list");
		if (option != 'f')
			return command_usage("list", "unknown option %s", argv[optind - 1]);
		fancy = true;
	}
	if (optind != argc)
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
	closedir(stream);
	return 0;
}
