/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the seccomp filter: a small interpreter runs its program for every system call's number, and the kernel does
 * for some. */
#define _GNU_SOURCE
#include "native/seccomp/seccomp.h"

#include <asm/unistd.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/personality.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "native/testing/check.h"

#ifdef __x86_64__
#define NATIVE AUDIT_ARCH_X86_64
#define FOREIGN AUDIT_ARCH_I386
#else
#define NATIVE AUDIT_ARCH_AARCH64
#define FOREIGN AUDIT_ARCH_ARM
#endif

static struct sock_filter program[JAIL_SECCOMP_MAX];
static size_t length;

/* What the kernel would do, for the few instructions that the generator writes. */
static unsigned evaluate(const struct seccomp_data *data)
{
	unsigned a = 0;

	for (size_t at = 0; at < length; at++) {
		const struct sock_filter *in = &program[at];
		bool yes = false;
		switch (in->code) {
		case BPF_LD | BPF_W | BPF_ABS: memcpy(&a, (const char *)data + in->k, 4); continue;
		case BPF_RET | BPF_K: return in->k;
		case BPF_JMP | BPF_JEQ | BPF_K: yes = a == in->k; break;
		case BPF_JMP | BPF_JGE | BPF_K: yes = a >= in->k; break;
		case BPF_JMP | BPF_JGT | BPF_K: yes = a > in->k; break;
		case BPF_JMP | BPF_JSET | BPF_K: yes = a & in->k; break;
		default: return ~0U;
		}
		at += yes ? in->jt : in->jf;
	}
	return ~0U;
}

/* The error that a call gets, 0 when it is allowed, -1 for anything else. */
static int answer(unsigned arch, int number, uint64_t arg0, uint64_t arg1, uint64_t arg2)
{
	const struct seccomp_data data = { .nr = number, .arch = arch, .args = { arg0, arg1, arg2 } };
	unsigned result = evaluate(&data);

	if (result == SECCOMP_RET_ALLOW)
		return 0;
	return (result & SECCOMP_RET_ACTION_FULL) == SECCOMP_RET_ERRNO ? (int)(result & SECCOMP_RET_DATA) : -1;
}

static const struct jail_syscall_rule *always_refused(int number)
{
	for (size_t i = 0; i < jail_syscall_n_rules; i++)
		if (jail_syscall_rules[i].number == number && jail_syscall_rules[i].tests[0].what == JAIL_ARGUMENT_ANY)
			return &jail_syscall_rules[i];
	return NULL;
}

static void test_each_number(void)
{
	for (int number = 0; number < 700; number++) {
		const struct jail_syscall_rule *rule = always_refused(number);
		int expected = rule ? rule->error : number > JAIL_NEWEST_SYSCALL ? ENOSYS : 0;
		if (answer(NATIVE, number, 0, 0, 0) != expected)
			fprintf(stderr, "call %d (%s)\n", number, rule ? rule->name : "not in the list");
		CHECK(answer(NATIVE, number, 0, 0, 0) == expected);
		CHECK(answer(FOREIGN, number, 0, 0, 0) == ENOSYS);
	}
	CHECK(answer(NATIVE, 0x40000000 + __NR_getpid, 0, 0, 0) == ENOSYS); /* x32 */
	CHECK(answer(NATIVE, -1, 0, 0, 0) == ENOSYS);
}

static void test_arguments(void)
{
	CHECK(answer(NATIVE, __NR_clone, SIGCHLD, 0, 0) == 0);
	CHECK(answer(NATIVE, __NR_clone, CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS | SIGCHLD, 0, 0) == 0);
	CHECK(answer(NATIVE, __NR_clone, CLONE_NEWUSER | CLONE_NEWCGROUP, 0, 0) == EPERM);
	CHECK(answer(NATIVE, __NR_unshare, CLONE_NEWUSER | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS, 0, 0) == 0);
	CHECK(answer(NATIVE, __NR_unshare, CLONE_NEWCGROUP, 0, 0) == EPERM);
	CHECK(answer(NATIVE, __NR_unshare, 0x80, 0, 0) == EPERM); /* CLONE_NEWTIME */
	CHECK(answer(NATIVE, __NR_personality, 0xffffffff, 0, 0) == 0);
	CHECK(answer(NATIVE, __NR_personality, PER_LINUX32 | ADDR_NO_RANDOMIZE, 0, 0) == 0);
	CHECK(answer(NATIVE, __NR_personality, READ_IMPLIES_EXEC, 0, 0) == EPERM);
	CHECK(answer(NATIVE, __NR_personality, PER_SVR4, 0, 0) == EPERM);
	CHECK(answer(NATIVE, __NR_personality, 0xfffffffe, 0, 0) == EPERM);
	CHECK(answer(NATIVE, __NR_ioctl, 0, TCGETS, 0) == 0);
	CHECK(answer(NATIVE, __NR_ioctl, 0, TIOCSTI, 0) == EPERM);
	CHECK(answer(NATIVE, __NR_ioctl, 0, TIOCSTI | UINT64_C(1) << 32, 0) == EPERM); /* the kernel cuts it off */
	CHECK(answer(NATIVE, __NR_ioctl, 0, TIOCLINUX, 0) == EPERM);
	CHECK(answer(NATIVE, __NR_ioctl, 0, TIOCSETD, 0) == EPERM);
	CHECK(answer(NATIVE, __NR_ioctl, TIOCSTI, 0, 0) == 0);
	CHECK(answer(NATIVE, __NR_fcntl, 0, F_SETFL, 0) == 0);
	CHECK(answer(NATIVE, __NR_fcntl, 0, F_OFD_SETLKW, 0) == 0);
	CHECK(answer(NATIVE, __NR_fcntl, 0, F_GETLEASE, 0) == 0);
	CHECK(answer(NATIVE, __NR_fcntl, 0, F_SETLEASE, F_RDLCK) == EINVAL);
	CHECK(answer(NATIVE, __NR_fcntl, 0, F_SETLEASE | UINT64_C(1) << 32, F_WRLCK) == EINVAL);
	CHECK(answer(NATIVE, __NR_fcntl, 0, 1040, 0) == EINVAL); /* F_SETDELEG */
	CHECK(answer(NATIVE, __NR_socket, AF_INET, SOCK_STREAM, 0) == 0);
	CHECK(answer(NATIVE, __NR_socket, AF_ALG, SOCK_SEQPACKET, 0) == EAFNOSUPPORT);
	CHECK(answer(NATIVE, __NR_socket, 40, SOCK_STREAM, 0) == EAFNOSUPPORT);
	CHECK(answer(NATIVE, __NR_socket, AF_NETLINK, SOCK_RAW, 0) == 0); /* NETLINK_ROUTE */
	CHECK(answer(NATIVE, __NR_socket, AF_NETLINK, SOCK_RAW, 9) == EAFNOSUPPORT);
	CHECK(answer(NATIVE, __NR_socket, AF_UNIX, SOCK_RAW, 9) == 0);
}

static void test_the_runtimes_calls_stay(void)
{
	static const int calls[] = {
		__NR_mount, __NR_umount2, __NR_pivot_root, __NR_setns, __NR_chroot, __NR_ptrace, __NR_process_vm_readv,
		__NR_mbind, __NR_execve, __NR_seccomp, 428 /* open_tree */, 429 /* move_mount */, 430 /* fsopen */,
		431 /* fsconfig */, 432 /* fsmount */, 438 /* pidfd_getfd */, 442 /* mount_setattr */,
	};

	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
		CHECK(answer(NATIVE, calls[i], 0, 0, 0) == 0);
}

static void test_each_has_a_reason(void)
{
	for (size_t i = 0; i < jail_syscall_n_rules; i++)
		CHECK(strlen(jail_syscall_rules[i].reason) >= 10 && jail_syscall_rules[i].error > 0);
}

/* In a child with the filter: 0, or the number of the line where something was not as expected. */
static int in_the_kernel(void)
{
	struct jail_error err;
	pid_t pid;

	/* Anybody is root in a user namespace of his own. */
	if (geteuid() && unshare(CLONE_NEWUSER))
		return __LINE__ % 256;
	if (jail_seccomp_attach(&err)) {
		fprintf(stderr, "%s (%d): %s\n", err.syscall, err.number, err.message);
		return __LINE__ % 256;
	}
	if (syscall(__NR_bpf, 0, 0, 0) != -1 || errno != EPERM)
		return __LINE__ % 256;
	if (syscall(__NR_keyctl, 0, 0, 0) != -1 || errno != ENOSYS)
		return __LINE__ % 256;
	if (socket(AF_NETLINK, SOCK_RAW, 9) != -1 || errno != EAFNOSUPPORT)
		return __LINE__ % 256;
	if (syscall(9999) != -1 || errno != ENOSYS)
		return __LINE__ % 256;
	if (personality(0xffffffff) == -1)
		return __LINE__ % 256;
	if (unshare(CLONE_NEWUSER | CLONE_NEWNS))
		return __LINE__ % 256;
	/* fork and threads still work, by way of clone. */
	pid = fork();
	if (!pid)
		_exit(0);
	return waitpid(pid, NULL, 0) == pid ? 0 : __LINE__ % 256;
}

static void test_the_kernel_takes_it(void)
{
	int status = -1;
	pid_t pid = fork();

	if (!pid)
		_exit(in_the_kernel());
	waitpid(pid, &status, 0);
	if (status)
		fprintf(stderr, "%s: line %d modulo 256\n", __FILE__, WEXITSTATUS(status));
	CHECK(status == 0);
}

static void test_what_is_allowed(void)
{
	struct jail_error err;
	unsigned allow = 0;

	CHECK(!jail_seccomp_allow("perf_event_open", &allow, &err) && allow == JAIL_ALLOW_PERF_EVENT_OPEN);
	CHECK(!jail_seccomp_allow("perf_event_open,perf_event_open", &allow, &err));
	const char *const wrong[] = { "", "bpf", "perf", "perf_event_open,", ",perf_event_open", "perf_event_open,bpf" };
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		CHECK(jail_seccomp_allow(wrong[i], &allow, &err) == -1);
	CHECK_HAS(err.message, "\"bpf\" is no system call that can be allowed; there is: perf_event_open");
	length = jail_seccomp_program(allow, program);
	CHECK(length > 0);
	/* That one, and nothing else. */
	for (int number = 0; number < 700; number++) {
		const struct jail_syscall_rule *rule = always_refused(number);
		int expected = rule ? rule->error : number > JAIL_NEWEST_SYSCALL ? ENOSYS : 0;
		CHECK(answer(NATIVE, number, 0, 0, 0) == (number == __NR_perf_event_open ? 0 : expected));
	}
	test_arguments();
}

int main(void)
{
	length = jail_seccomp_program(0, program);
	CHECK(length > 0);
	test_each_number();
	test_arguments();
	test_the_runtimes_calls_stay();
	test_each_has_a_reason();
	test_the_kernel_takes_it();
	test_what_is_allowed();
	return check_result("seccomp");
}
