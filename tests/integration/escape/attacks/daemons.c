/* SPDX-License-Identifier: Apache-2.0 */
/* The daemons of the node, each by its number: signalled, steered, and what only they have. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "attack.h"

static void send_nothing(pid_t pid)
{
	errno = 0;
	if (!pid)
		held("it has no number here");
	if (kill(pid, 0))
		held("kill %d", (int)pid);
	escaped("process %d can be signalled", (int)pid);
}

static void choose_for_oom(pid_t pid)
{
	char path[64];

	errno = 0;
	if (!pid)
		held("it has no number here");
	snprintf(path, sizeof(path), "/proc/%d/oom_score_adj", (int)pid);
	if (access(path, F_OK))
		held("find %s", path);
	write_back(path);
}

static void set_limits(pid_t pid)
{
	struct rlimit limit;

	errno = 0;
	if (!pid)
		held("it has no number here");
	if (prlimit(pid, RLIMIT_NOFILE, NULL, &limit) || prlimit(pid, RLIMIT_NOFILE, &limit, NULL))
		held("prlimit %d", (int)pid);
	escaped("the limits of process %d were set", (int)pid);
}

#define ATTACKS_ON(id, variable, name)                                                                                \
	static void signal_##id(void) { send_nothing(outside_process(variable, name)); }                              \
	static void oom_##id(void) { choose_for_oom(outside_process(variable, name)); }                               \
	static void limits_##id(void) { set_limits(outside_process(variable, name)); }

ATTACKS_ON(slurmd, "SLURMD", "slurmd")
ATTACKS_ON(stepd, "STEPD", "slurmstepd")
ATTACKS_ON(munged, "MUNGED", given("KEY_HOLDER"))
ATTACKS_ON(sshd, "SSHD", "sshd")
ATTACKS_ON(agent, "AGENT", "ssh-agent")

/* Who does not see numbers may guess them all. */
static void signal_any_number(void)
{
	/* What has a number in there is of this job, or of a session of the user's. */
	errno = 0;
	if (is_own_pid_namespace())
		held("a PID namespace of its own");
	for (pid_t pid = 1; pid < 1 << 17; pid++)
		if (!is_of_this_job(pid) && !kill(pid, 0))
			escaped("process %d, which is not of this job, can be signalled", (int)pid);
	errno = 0;
	held("no number leads to a process of the node");
}

static const char *const holders[] = { "MUNGED", "SLURMD", "SSHD", "AGENT", NULL };

/* Visits `path` as it is here, and in the root of each daemon. */
static void for_each_root(const char *path, void (*visit)(const char *path))
{
	char there[512];

	visit(path);
	snprintf(there, sizeof(there), "/proc/1/root%s", path);
	visit(there);
	for (const char *const *holder = holders; *holder; holder++) {
		snprintf(there, sizeof(there), "/proc/%ld/root%s", given_number(*holder), path);
		visit(there);
	}
}

static void try_open(const char *path)
{
	char byte;
	int fd = open(path, O_RDONLY);

	if (fd >= 0 && read(fd, &byte, 1) == 1)
		escaped("%s can be read", path);
	if (fd >= 0)
		close(fd);
}

static void munge_key(void)
{
	for_each_root(given("KEY"), try_open);
	for_each_root(given("SECRET_KEY"), try_open);
	held("open %s", given("KEY"));
}

static void host_keys(void)
{
	static const char *const kinds[] = { "ed25519", "rsa", "ecdsa" };

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		char path[128];
		snprintf(path, sizeof(path), "/etc/ssh/ssh_host_%s_key", kinds[i]);
		/* The jail may have keys of its own, made by its package. */
		if (access(path, F_OK))
			for_each_root(path, try_open);
		snprintf(path, sizeof(path), "/run/secrets/cellblock/ssh_host_%s_key", kinds[i]);
		for_each_root(path, try_open);
	}
	held("open ssh_host_*_key");
}

static void try_connect(const char *path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	if (fd >= 0 && !connect(fd, (struct sockaddr *)&address, sizeof(address)))
		escaped("%s takes connections", path);
	if (fd >= 0)
		close(fd);
}

static void agent_socket(void)
{
	for_each_root("/run/sshd/host-keys.agent", try_connect);
	held("connect to host-keys.agent");
}

static void sshd_descriptors(void)
{
	pid_t pid = outside_process("SSHD", "sshd");
	int process = (int)syscall(SYS_pidfd_open, pid, 0);

	for (int fd = 0; process >= 0 && fd < 32; fd++)
		if (syscall(SYS_pidfd_getfd, process, fd, 0) >= 0)
			escaped("descriptor %d of sshd was taken", fd);
	for (int fd = 0; fd < 32; fd++) {
		char path[64], target[256];
		snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)pid, fd);
		if (readlink(path, target, sizeof(target)) > 0)
			escaped("%s can be followed", path);
	}
	held("pidfd_getfd, readlink /proc/%d/fd/*", (int)pid);
}

const struct attack daemon_attacks[] = {
	{ "signal-slurmd", signal_slurmd },
	{ "signal-slurmstepd", signal_stepd },
	{ "signal-munged", signal_munged },
	{ "signal-sshd", signal_sshd },
	{ "signal-agent", signal_agent },
	{ "oom-score-of-slurmd", oom_slurmd },
	{ "oom-score-of-slurmstepd", oom_stepd },
	{ "oom-score-of-munged", oom_munged },
	{ "oom-score-of-sshd", oom_sshd },
	{ "oom-score-of-agent", oom_agent },
	{ "limits-of-slurmd", limits_slurmd },
	{ "limits-of-slurmstepd", limits_stepd },
	{ "limits-of-munged", limits_munged },
	{ "limits-of-sshd", limits_sshd },
	{ "limits-of-agent", limits_agent },
	{ "signal-any-number", signal_any_number },
	{ "munge-key", munge_key },
	{ "host-keys", host_keys },
	{ "agent-socket", agent_socket },
	{ "sshd-descriptors", sshd_descriptors },
	{ NULL, NULL },
};
