/* SPDX-License-Identifier: Apache-2.0 */
/* Opens a terminal (pty) in the jail for jail-enter's command, and copies between it and the caller's terminal.
 * jail_enter.c calls it. */
#define _GNU_SOURCE
#include "terminal.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "native/base/descriptor.h"
#include "native/base/scoped.h"
#include "native/base/sys.h"

/* Bytes on their way to the terminal in the jail, which takes no more while nobody reads there. */
struct pending {
	char bytes[4096];
	size_t used, done;
};

static struct termios before;
static bool is_raw;
static int outer = -1; /* the caller's terminal: what the jail's shows goes there, and nowhere that output was directed to */

static void restore(void)
{
	if (is_raw)
		tcsetattr(outer, TCSADRAIN, &before);
	is_raw = false;
}

static void make_raw(void)
{
	struct termios raw;

	if (!isatty(STDIN_FILENO) || tcgetattr(outer, &before))
		return;
	raw = before;
	cfmakeraw(&raw);
	is_raw = !tcsetattr(outer, TCSADRAIN, &raw);
}

static void copy_size(int master)
{
	struct winsize size;

	if (!ioctl(outer, TIOCGWINSZ, &size))
		(void)ioctl(master, TIOCSWINSZ, &size);
}

static bool write_all(int fd, const char *bytes, size_t length)
{
	while (length) {
		ssize_t done = write(fd, bytes, length);
		if (done < 0 && errno != EINTR)
			return false;
		if (done > 0) {
			bytes += done;
			length -= (size_t)done;
		}
	}
	return true;
}

/* Shows what the terminal in the jail has. False at its end, which a terminal without users tells by EIO. */
static bool show(int master)
{
	char bytes[4096];
	ssize_t got = read(master, bytes, sizeof(bytes));

	if (got < 0 && (errno == EINTR || errno == EAGAIN))
		return true;
	return got > 0 && write_all(outer, bytes, (size_t)got);
}

/* Takes what was typed. False at the end. */
static bool read_typed(struct pending *pending)
{
	ssize_t got = read(STDIN_FILENO, pending->bytes, sizeof(pending->bytes));

	if (got < 0 && errno == EINTR)
		return true;
	pending->used = got > 0 ? (size_t)got : 0;
	pending->done = 0;
	return got > 0;
}

/* Hands on as much as is taken. */
static bool hand_on(struct pending *pending, int master)
{
	ssize_t done = write(master, pending->bytes + pending->done, pending->used - pending->done);

	if (done < 0)
		return errno == EINTR || errno == EAGAIN;
	pending->done += (size_t)done;
	if (pending->done == pending->used)
		pending->used = pending->done = 0;
	return true;
}

static volatile sig_atomic_t resized, ended, asked;

static void note(int number)
{
	if (number == SIGWINCH)
		resized = 1;
	else if (number == SIGCHLD)
		ended = 1;
	else
		asked = number;
}

static void catch_signals(sigset_t *open)
{
	static const int numbers[] = { SIGWINCH, SIGCHLD, SIGTERM, SIGHUP, SIGINT, SIGQUIT };
	const struct sigaction action = { .sa_handler = note };
	sigset_t mine;

	sigemptyset(&mine);
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		sigaction(numbers[i], &action, NULL);
		sigaddset(&mine, numbers[i]);
	}
	sigprocmask(SIG_BLOCK, &mine, open);
}

/* What the command wrote last, once it has ended: processes in the background may go on writing. */
static void drain(int master)
{
	struct pollfd ready = { .fd = master, .events = POLLIN };

	for (int rounds = 0; rounds < 256 && poll(&ready, 1, 0) > 0 && (ready.revents & POLLIN); rounds++)
		if (!show(master))
			return;
}

static _Noreturn void end_as(pid_t child, int master)
{
	int status = 0;

	while (waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
	if (master >= 0)
		drain(master);
	restore();
	_exit(WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status));
}

static void obey(pid_t child, int master)
{
	if (resized && master >= 0)
		copy_size(master);
	resized = 0;
	if (asked)
		(void)kill(child, asked);
	asked = 0;
}

enum { FROM_CHILD, FROM_JAIL, FROM_CALLER, N_READY };

/* The child has made its terminal, or ended. Returns its master, or -1. */
static int receive(int socket)
{
	int master = -1;
	char byte = 0;

	if (jail_descriptor_receive(socket, &master, &byte, 1) != 1 || master < 0)
		return -1;
	(void)fcntl(master, F_SETFL, O_RDWR | O_NONBLOCK);
	make_raw();
	copy_size(master);
	return master;
}

/* Until the child has made a terminal, or ended, its messages go to the caller's terminal. */
static _Noreturn void relay(pid_t child, int socket)
{
	struct pollfd ready[N_READY] = { { .fd = socket, .events = POLLIN }, { .fd = -1 }, { .fd = -1, .events = POLLIN } };
	struct pending pending = { .used = 0 };
	bool typing = isatty(STDIN_FILENO);
	sigset_t open;
	int master = -1;

	catch_signals(&open);
	for (;;) {
		/* SIGCHLD may have come before it was caught. */
		siginfo_t info = { 0 };
		if (ended || (!waitid(P_PID, (id_t)child, &info, WEXITED | WNOHANG | WNOWAIT) && info.si_pid))
			end_as(child, master);
		ready[FROM_JAIL].events = (short)(POLLIN | (pending.used ? POLLOUT : 0));
		ready[FROM_CALLER].fd = master >= 0 && typing && !pending.used ? STDIN_FILENO : -1;
		if (ppoll(ready, N_READY, NULL, &open) < 0) {
			obey(child, master);
			continue;
		}
		if (ready[FROM_CHILD].revents) {
			ready[FROM_CHILD].fd = -1;
			ready[FROM_JAIL].fd = master = receive(socket);
		}
		if ((ready[FROM_JAIL].revents & ~POLLOUT) && !show(master))
			ready[FROM_JAIL].fd = -1;
		if ((ready[FROM_JAIL].revents & POLLOUT) && pending.used && !hand_on(&pending, master))
			ready[FROM_JAIL].fd = -1;
		if (ready[FROM_CALLER].fd >= 0 && ready[FROM_CALLER].revents && !read_typed(&pending))
			typing = false;
	}
}

/* Without a terminal among the streams there may be a controlling one, by /dev/tty. */
static void leave_terminal(void)
{
	scoped_fd terminal = open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC);

	if (terminal < 0)
		return;
	/* To who leads the session it is also SIGHUP, for the others. */
	signal(SIGHUP, SIG_IGN);
	(void)ioctl(terminal, TIOCNOTTY);
	signal(SIGHUP, SIG_DFL);
}

int jail_terminal_fork(struct jail_error *err)
{
	static const int streams[] = { STDERR_FILENO, STDOUT_FILENO, STDIN_FILENO };
	int ends[2];

	for (size_t i = 0; i < sizeof(streams) / sizeof(streams[0]); i++)
		if (isatty(streams[i]))
			outer = streams[i];
	if (outer < 0) {
		leave_terminal();
		return -1;
	}
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends)) {
		jail_fail(err, "socketpair", errno, "cannot prepare a terminal in the jail");
		return -2;
	}
	pid_t child = fork();
	if (child < 0) {
		jail_fail(err, "fork", errno, "cannot prepare a terminal in the jail");
		return -2;
	}
	close(ends[child ? 1 : 0]);
	if (child)
		relay(child, ends[0]);
	return ends[1];
}

int jail_terminal_open(int socket, struct jail_error *err)
{
	struct termios settings;
	int unlock = 0;

	scoped_fd master = sys_open("/dev/ptmx", O_RDWR | O_NOCTTY);
	if (master < 0)
		return jail_fail(err, "open", errno, "cannot make a terminal in the jail; the mount plan needs lines of the types "
				 "dev and devpts");
	if (ioctl(master, TIOCSPTLCK, &unlock))
		return jail_fail(err, "ioctl", errno, "cannot unlock the terminal in the jail");
	/* By the descriptor, not by a name that users could change. */
	scoped_fd terminal = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (terminal < 0)
		return jail_fail(err, "ioctl", errno, "cannot open the terminal in the jail");
	if (!tcgetattr(outer, &settings))
		(void)tcsetattr(terminal, TCSANOW, &settings);
	if (setsid() < 0 || ioctl(terminal, TIOCSCTTY, 0))
		return jail_fail(err, "ioctl", errno, "cannot take the terminal in the jail as the controlling one");
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
		if (isatty(fd) && dup2(terminal, fd) < 0)
			return jail_fail(err, "dup2", errno, "cannot use the terminal in the jail");
	if (!jail_descriptor_send(socket, master, "", 1))
		return jail_fail(err, "sendmsg", errno, "cannot hand over the terminal in the jail");
	close(socket);
	return 0;
}

int jail_terminal_give(uid_t uid, struct jail_error *err)
{
	/* It stands in the place of the caller's. */
	return fchown(outer, uid, (gid_t)-1) ? jail_fail(err, "fchown", errno, "cannot give the terminal to uid %u", (unsigned)uid)
					     : 0;
}
