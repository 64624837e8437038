/* SPDX-License-Identifier: Apache-2.0 */
/* Attaches a seccomp filter with which chown(2) and similar calls do nothing and succeed. Package managers and tar
 * need that in a container with one uid. join.c and enroot/container call it. */
#define _GNU_SOURCE
#include "fake_chown.h"

#include <errno.h>
#include <linux/seccomp.h>
#include <sys/syscall.h>

#include "native/seccomp/seccomp.h"
#include "native/base/sys.h"

#define NOTHING(call) { .name = #call, .number = SYS_##call, .error = 0, .reason = "there is one uid" }

static const struct jail_syscall_rule rules[] = {
/* The 64-bit architectures that came late have only the calls with "at". */
#ifdef SYS_chown
	NOTHING(chown),
	NOTHING(lchown),
#endif
	NOTHING(fchown),
	NOTHING(fchownat),
	NOTHING(setuid),
	NOTHING(setgid),
	NOTHING(setreuid),
	NOTHING(setregid),
	NOTHING(setresuid),
	NOTHING(setresgid),
	NOTHING(setfsuid),
	NOTHING(setfsgid),
	NOTHING(setgroups),
};

#define N_RULES (sizeof(rules) / sizeof(rules[0]))

int fake_chown(struct jail_error *err)
{
	const struct jail_syscall_rule *list[N_RULES];
	struct sock_filter code[JAIL_SECCOMP_MAX];

	for (size_t i = 0; i < N_RULES; i++)
		list[i] = &rules[i];
	const struct sock_fprog program = {
		.len = (unsigned short)jail_seccomp_compile(list, N_RULES, 0, code),
		.filter = code,
	};
	if (sys_seccomp(SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_SPEC_ALLOW, &program))
		return jail_fail(err, "seccomp", errno, errno == EINVAL
				 ? "this kernel has no system call filters (CONFIG_SECCOMP_FILTER)"
				 : "cannot attach the filter of owners and ids");
	return 0;
}
