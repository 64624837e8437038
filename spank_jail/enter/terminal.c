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

#include "../core/descriptor.h"
#include "../core/scoped.h"
#include "../core/sys.h"

static struct termios before;
static bool is_raw;

static void restore(void)
{
	if (is_raw)
		tcsetattr(STDIN_FILENO, TCSADRAIN, &before);
	is_raw = false;
}

static void make_raw(void)
{
	struct termios raw;

	if (tcgetattr(STDIN_FILENO, &before))
		return;
	raw = before;
	cfmakeraw(&raw);
	is_raw = !tcsetattr(STDIN_FILENO, TCSADRAIN, &raw);
}

static void copy_size(int master)
{
	struct winsize size;

	if (!ioctl(STDIN_FILENO, TIOCGWINSZ, &size))
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

/* Moves what is there. False at the end of `from`, which a terminal without users tells by EIO. */
static bool move(int from, int to)
{
	char bytes[4096];
	ssize_t got = read(from, bytes, sizeof(bytes));

	if (got < 0 && (errno == EINTR || errno == EAGAIN))
		return true;
	return got > 0 && write_all(to, bytes, (size_t)got);
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
		if (!move(master, STDOUT_FILENO))
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

/* Until the child has made a terminal, or ended, its messages go to the caller's terminal. */
static _Noreturn void relay(pid_t child, int socket)
{
	struct pollfd ready[3] = { { .fd = socket, .events = POLLIN }, { .fd = -1, .events = POLLIN },
				   { .fd = -1, .events = POLLIN } };
	sigset_t open;
	int master = -1;
	char byte;

	catch_signals(&open);
	for (;;) {
		/* SIGCHLD may have come before it was caught. */
		siginfo_t info = { 0 };
		if (ended || (!waitid(P_PID, (id_t)child, &info, WEXITED | WNOHANG | WNOWAIT) && info.si_pid))
			end_as(child, master);
		if (ppoll(ready, 3, NULL, &open) < 0) {
			obey(child, master);
			continue;
		}
		if (ready[0].revents) {
			ready[0].fd = -1;
			if (jail_descriptor_receive(socket, &master, &byte, 1) == 1 && master >= 0) {
				make_raw();
				copy_size(master);
				ready[1].fd = master;
				ready[2].fd = STDIN_FILENO;
			}
		}
		if (ready[1].revents && !move(master, STDOUT_FILENO))
			ready[1].fd = -1;
		if (ready[2].revents && !move(STDIN_FILENO, master))
			ready[2].fd = -1;
	}
}

int jail_terminal_fork(struct jail_error *err)
{
	int ends[2];

	if (!isatty(STDIN_FILENO))
		return -1;
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
	if (!tcgetattr(STDIN_FILENO, &settings))
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
	return fchown(STDIN_FILENO, uid, (gid_t)-1) ? jail_fail(err, "fchown", errno, "cannot give the terminal to uid %u", (unsigned)uid)
						    : 0;
}
