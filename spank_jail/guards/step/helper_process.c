/* SPDX-License-Identifier: Apache-2.0 */
/* Forks and kills children that do in their parent's place what may wait for ever. bounded_look.c and bounded_read.c
 * call it. */
#define _GNU_SOURCE
#include "helper_process.h"

#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "native/base/scoped.h"

struct helper helper_begin(void)
{
	/* Not fork(3), whose handlers are for tasks. Without a signal at its end: Slurm waits for its own children. */
	struct helper helper = { .pid = (pid_t)syscall(SYS_clone, 0, NULL, NULL, NULL, NULL), .process = -1 };

	if (helper.pid > 0)
		helper.process = (int)syscall(SYS_pidfd_open, helper.pid, 0);
	return helper;
}

int helper_end(struct helper *helper)
{
	struct pollfd ended = { .fd = helper->process, .events = POLLIN };
	int status = 0;

	if (helper->pid <= 0)
		return -1;
	(void)kill(helper->pid, SIGKILL);
	(void)poll(&ended, helper->process >= 0, HELPER_LONGEST_MS);
	pid_t waited = waitpid(helper->pid, &status, __WALL | WNOHANG);
	jail_close(&helper->process);
	int answer = waited == helper->pid && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
	helper->pid = -1;
	return answer;
}
