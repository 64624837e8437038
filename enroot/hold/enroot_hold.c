/* SPDX-License-Identifier: Apache-2.0 */
/* enroot-hold READY LIFE NAME: the only process of a container without a command. It sleeps, so that the container's
 * namespaces stay for others to join. enroot/container/hold_container.c runs it.
 *
 * It is linked statically, because it runs in any container root. It ends, with status 0, when the descriptor LIFE is
 * closed at its other end.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/close_range.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	int ready = argc == 4 ? atoi(argv[1]) : -1, life = argc == 4 ? atoi(argv[2]) : -1;
	char byte;
	ssize_t got;

	if (ready < 3 || life < 3)
		return 2;
	/* The step's signals are its tasks'; this one ends with them, by LIFE. */
	setsid();
	for (int number = 1; number < NSIG; number++)
		signal(number, number == SIGCHLD ? SIG_DFL : SIG_IGN);
	prctl(PR_SET_NAME, "enroot-hold");
	if (dup2(life, STDIN_FILENO) != STDIN_FILENO || write(ready, "", 1) != 1)
		return 1;
	/* Its output was a log; nobody waits for the end of one. */
	syscall(SYS_close_range, 1U, ~0U, 0U);
	do
		got = read(STDIN_FILENO, &byte, 1);
	while (got > 0 || (got < 0 && errno == EINTR));
	return 0;
}
