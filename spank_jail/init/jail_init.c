/* SPDX-License-Identifier: Apache-2.0 */
/* jail-init: the first process (init) of a PID namespace for jobs. It sleeps until it is killed.
 * native/jail/pid_namespace.c runs it.
 *
 * pid_namespace.c has it ignore SIGCHLD, so that the kernel reaps orphans, and die with its parent
 * (PR_SET_PDEATHSIG). It handles no signal, so processes of the namespace cannot signal it. Its argument becomes its
 * process name, its parent's: proctrack/linuxproc spares those when it kills a step. It has no C library: each step
 * has one, and it is to cost a few pages.
 */
#include <linux/capability.h>
#include <linux/prctl.h>
#include <stdint.h>
#include <sys/syscall.h>

#if defined(__x86_64__)
static long call(long number, long a, long b, long c, long d)
{
	register long fourth __asm__("r10") = d;
	long result;

	__asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(fourth)
			 : "rcx", "r11", "memory");
	return result;
}
#elif defined(__aarch64__)
static long call(long number, long a, long b, long c, long d)
{
	register long x8 __asm__("x8") = number, x0 __asm__("x0") = a, x1 __asm__("x1") = b, x2 __asm__("x2") = c,
		      x3 __asm__("x3") = d;

	__asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3) : "memory");
	return x0;
}
#else
#error "jail_init.c knows the system calls of x86-64 and 64-bit Arm; add those of this architecture"
#endif

/* What the kernel leaves on the stack: the number of arguments, and then they. */
_Noreturn void run(const long *stack);

#if defined(__x86_64__)
__asm__(".globl _start\n_start: mov %rsp, %rdi\n call run\n");
#else
__asm__(".globl _start\n_start: mov x0, sp\n bl run\n");
#endif

_Noreturn void run(const long *stack)
{
	struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct none[2] = { { 0, 0, 0 }, { 0, 0, 0 } };

	/* It needs no right, and a root in the jail none over it: not its memory, not the link to its program. */
	if (call(SYS_prctl, PR_SET_DUMPABLE, 0, 0, 0) || call(SYS_capset, (long)&header, (long)none, 0, 0))
		call(SYS_exit_group, 1, 0, 0, 0);
	call(SYS_prctl, PR_SET_NAME, stack[1], 0, 0);
	for (;;)
		call(SYS_ppoll, 0, 0, 0, 0);
}
