/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the levels of isolation: their names, and which rights each leaves to a process. */
#define _GNU_SOURCE
#include "native/mount/isolation_level.h"

#include <linux/capability.h>
#include <sched.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "native/jail/confine.h"
#include "native/base/sys.h"
#include "native/testing/check.h"

static void test_names(void)
{
	enum jail_level level;

	CHECK(!jail_level_parse("filesystem", &level) && level == JAIL_LEVEL_FILESYSTEM);
	CHECK(!jail_level_parse("capabilities", &level) && level == JAIL_LEVEL_CAPABILITIES);
	CHECK(!jail_level_parse("pid", &level) && level == JAIL_LEVEL_PID);
	CHECK(jail_level_parse("", &level) == -1 && jail_level_parse("PID", &level) == -1);
	CHECK(!strcmp(jail_level_name(JAIL_LEVEL_PID), "pid"));
}

static void test_what_is_allowed(void)
{
	static const unsigned denied[] = {
		CAP_SYS_ADMIN, CAP_SYS_MODULE, CAP_SYS_RAWIO, CAP_SYS_PTRACE, CAP_MKNOD, CAP_DAC_READ_SEARCH, CAP_NET_ADMIN,
		CAP_NET_RAW, CAP_NET_BIND_SERVICE, CAP_SYS_RESOURCE, CAP_SYS_TIME, CAP_SYS_BOOT, CAP_AUDIT_WRITE, CAP_BPF,
		CAP_PERFMON, CAP_SYSLOG, CAP_LINUX_IMMUTABLE, CAP_CHECKPOINT_RESTORE, 41, 63, 64, 1000,
	};

	CHECK(jail_confine_allows(CAP_CHOWN) && jail_confine_allows(CAP_SETUID) && jail_confine_allows(CAP_SETFCAP));
	for (size_t i = 0; i < sizeof(denied) / sizeof(denied[0]); i++)
		CHECK(!jail_confine_allows(denied[i]));
}

static int sets(uint64_t *effective, uint64_t *permitted, uint64_t *inheritable)
{
	uint32_t words[3][2];

	if (sys_capget(words[0], words[1], words[2]))
		return -1;
	*effective = words[0][0] | (uint64_t)words[0][1] << 32;
	*permitted = words[1][0] | (uint64_t)words[1][1] << 32;
	*inheritable = words[2][0] | (uint64_t)words[2][1] << 32;
	return 0;
}

/* Makes every capability inheritable and ambient: more than a daemon would ever start us with. */
static int gain_ambient(void)
{
	uint32_t effective[2], permitted[2], inheritable[2];

	if (sys_capget(effective, permitted, inheritable) || sys_capset(effective, permitted, permitted))
		return -1;
	return prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_SYS_ADMIN, 0, 0);
}

static int confined(void)
{
	struct jail_error err;
	uint64_t effective, permitted, inheritable, before;

	if (geteuid() && unshare(CLONE_NEWUSER))
		return 1;
	if (gain_ambient() || sets(&before, &permitted, &inheritable) || !inheritable)
		return 2;
	/* Root outside has more than it leaves to root inside. */
	const struct rlimit given = { 1000, 2000 };
	struct rlimit left;
	if (setrlimit(RLIMIT_SIGPENDING, &given))
		return 12;
	if (jail_confine(JAIL_LEVEL_CAPABILITIES, &err)) {
		fprintf(stderr, "%s (%d): %s\n", err.syscall, err.number, err.message);
		return 3;
	}
	if (getrlimit(RLIMIT_SIGPENDING, &left) || left.rlim_cur != 1000 || left.rlim_max != 1000)
		return 13;
	/* Between the two calls root can still set limits and ids, but follow no /proc/PID/root of the node's. */
	const uint64_t doors = UINT64_C(1) << CAP_SYS_ADMIN | UINT64_C(1) << CAP_SYS_PTRACE;
	if (sets(&effective, &permitted, &inheritable) || effective != (before & ~doors) || inheritable)
		return 4;
	if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_IS_SET, CAP_SYS_ADMIN, 0, 0))
		return 5;
	for (unsigned capability = 0; prctl(PR_CAPBSET_READ, capability) >= 0; capability++)
		if (prctl(PR_CAPBSET_READ, capability) && !jail_confine_allows(capability))
			return 6;
	if (jail_confine_final(JAIL_LEVEL_CAPABILITIES, &err) || sets(&effective, &permitted, &inheritable))
		return 7;
	for (unsigned capability = 0; capability < 64; capability++)
		if ((permitted | effective) >> capability & 1 && !jail_confine_allows(capability))
			return 8;
	if (!(effective >> CAP_CHOWN & 1) || prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) || prctl(PR_GET_SECUREBITS))
		return 9;
	/* Root inside has what it has, and looks into it for all that not. */
	if (prctl(PR_GET_DUMPABLE, 0, 0, 0, 0))
		return 11;
	/* Once more costs nothing: there is nothing left to give up. */
	return jail_confine_final(JAIL_LEVEL_PID, &err) ? 10 : 0;
}

static int left_alone(void)
{
	struct jail_error err;
	uint64_t before[3], after[3];

	if (sets(&before[0], &before[1], &before[2]) || jail_confine(JAIL_LEVEL_FILESYSTEM, &err) ||
	    jail_confine_final(JAIL_LEVEL_FILESYSTEM, &err) || sets(&after[0], &after[1], &after[2]))
		return 1;
	return memcmp(before, after, sizeof(before)) || prctl(PR_GET_SECCOMP) ? 2 : 0;
}

static int in_child(int (*action)(void))
{
	int status = -1;
	pid_t pid = fork();

	if (!pid)
		_exit(action());
	waitpid(pid, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int main(void)
{
	test_names();
	test_what_is_allowed();
	CHECK(in_child(left_alone) == 0);
	CHECK(in_child(confined) == 0);
	return check_result("isolation_level");
}
