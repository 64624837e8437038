/* SPDX-License-Identifier: Apache-2.0 */
/* Reads files in /proc from a child that can be killed: their readers wait for locks that a user's process may keep.
 * accounting.c calls it. */
#define _GNU_SOURCE
#include "bounded_read.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "native/base/clock.h"
#include "native/base/scoped.h"
#include "helper_process.h"

/* A user's processes that all keep their readers waiting cost this many times HELPER_LONGEST_MS, and then
 * nothing for so many seconds. */
#define MOST_UNANSWERED_READS 3
#define PAUSE_S 30
/* Of a message, after its kind; smaps(5) of a process takes many. */
#define PART 4095
#define MOST_PARTS 256

enum kind { PART_OF_FILE = 'p', END_OF_FILE = 'e', NO_FILE = 'n' };

static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
static struct helper reader = { .pid = -1, .process = -1 };
static int requests = -1;
static unsigned unanswered_reads;
static time_t unanswered_since;

/* In the reader. It allocates nothing: another thread of the parent may have held the locks of that. */
static void answer(int socket, const char *path)
{
	char message[1 + PART];
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t got = fd < 0 ? -1 : 1;

	for (int parts = 0; got > 0 && parts < MOST_PARTS; parts++) {
		got = read(fd, message + 1, PART);
		message[0] = PART_OF_FILE;
		if (got > 0 && send(socket, message, 1 + (size_t)got, MSG_NOSIGNAL) < 0)
			got = -1;
	}
	message[0] = got < 0 ? NO_FILE : END_OF_FILE;
	(void)send(socket, message, 1, MSG_NOSIGNAL);
	if (fd >= 0)
		close(fd);
}

static _Noreturn void serve(int socket)
{
	char path[PATH_MAX];
	ssize_t got;

	/* What is sent to the step's processes is not meant for it. It ends when nobody has the other end of the socket. */
	for (int number = 1; number < NSIG; number++)
		(void)signal(number, SIG_IGN);
	(void)prctl(PR_SET_DUMPABLE, 0UL, 0UL, 0UL, 0UL);
	/* Whoever counts slurmstepds counts steps. */
	(void)prctl(PR_SET_NAME, "step-accounting", 0UL, 0UL, 0UL);
	(void)dup2(socket, STDIN_FILENO);
	(void)syscall(SYS_close_range, STDIN_FILENO + 1, UINT_MAX, 0);
	/* In the window there is no /proc; the next one is begun elsewhere. */
	while (!access("/proc/self/stat", F_OK) && (got = read(STDIN_FILENO, path, sizeof(path) - 1)) > 0) {
		path[got] = '\0';
		answer(STDIN_FILENO, path);
	}
	(void)syscall(SYS_exit_group, 0);
	__builtin_unreachable();
}

static void end_reader(void)
{
	jail_close(&requests);
	(void)helper_end(&reader);
}

static bool begin_reader(void)
{
	int ends[2];

	if (requests >= 0)
		return true;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends))
		return false;
	reader = helper_begin();
	if (!reader.pid)
		serve(ends[1]);
	close(ends[1]);
	requests = ends[0];
	if (reader.pid < 0)
		end_reader();
	return reader.pid > 0;
}

/* Takes an answer into `copy`. Returns its last kind; 0: there was none in time, -1: the reader has ended. */
static int take_answer(int copy)
{
	char message[1 + PART];
	struct pollfd ready = { .fd = requests, .events = POLLIN };
	off_t length = 0;

	for (;;) {
		if (poll(&ready, 1, HELPER_LONGEST_MS) <= 0)
			return 0;
		ssize_t got = recv(requests, message, sizeof(message), 0);
		if (got <= 0)
			return -1;
		if (message[0] != PART_OF_FILE)
			return message[0];
		if (pwrite(copy, message + 1, (size_t)got - 1, length) != got - 1)
			return -1;
		length += got - 1;
	}
}

/* Whether too many have kept their readers waiting. */
static bool is_paused(void)
{
	if (clock_s() - unanswered_since >= PAUSE_S)
		unanswered_reads = 0;
	return unanswered_reads >= MOST_UNANSWERED_READS;
}

static int read_in_turn(const char *path)
{
	scoped_fd copy = is_paused() ? -1 : memfd_create("process", MFD_CLOEXEC);
	int kind = -1;

	/* Once more where the reader has ended, as one that was begun in the window. */
	for (int tries = 0; copy >= 0 && kind < 0 && tries < 2 && !ftruncate(copy, 0) && begin_reader(); tries++) {
		kind = send(requests, path, strlen(path), MSG_NOSIGNAL) < 0 ? -1 : take_answer(copy);
		if (!kind && !unanswered_reads++)
			unanswered_since = clock_s();
		if (kind <= 0)
			end_reader();
	}
	return kind == END_OF_FILE ? jail_keep(&copy) : -1;
}

int bounded_read(const char *path)
{
	pthread_mutex_lock(&turn);
	int fd = read_in_turn(path);
	pthread_mutex_unlock(&turn);
	return fd;
}
