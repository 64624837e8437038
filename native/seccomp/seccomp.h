/* SPDX-License-Identifier: Apache-2.0 */
/* The seccomp filter of the jail: refuses system calls that no job needs and many kernel exploits use.
 *
 * It refuses what seccomp_rules.c lists and allows the rest, so that programs nobody thought of work. mount,
 * pivot_root, unshare and the like stay: the kernel allows them in user namespaces alone, where the container runtime
 * lives. Calls of other ABIs (i386, x32, 32-bit Arm) and calls newer than the list get ENOSYS, as from a kernel
 * without them.
 */
#ifndef JAIL_SECCOMP_H
#define JAIL_SECCOMP_H

#include <linux/filter.h>
#include <stddef.h>
#include <stdint.h>

#include "native/base/error.h"

/* The newest call that was judged when the rules were written: file_setattr of Linux 6.17. One list of
 * numbers for all architectures since 403 (Linux 5.0). */
#define JAIL_NEWEST_SYSCALL 469

/* Compares the low 32 bits of an argument. All that are looked at are of that size in the kernel, or are
 * flags whose meaning lies there; to look at the high ones would let a caller hide behind them. */
struct jail_syscall_test {
	enum { JAIL_ARGUMENT_ANY, JAIL_ARGUMENT_IS, JAIL_ARGUMENT_IS_NOT, JAIL_ARGUMENT_HAS } what;
	unsigned argument; /* 0-5 */
	uint32_t value;    /* for HAS: any of these bits */
};

struct jail_syscall_rule {
	const char *name;
	int number;
	int error; /* what the caller gets */
	const char *reason;
	struct jail_syscall_test tests[2]; /* refused when all hold; none: always */
};

extern const struct jail_syscall_rule jail_syscall_rules[];
extern const size_t jail_syscall_n_rules;

/* Calls that an administrator may give back, as bits: what some programs cannot do without, and what the kernel
 * guards by settings of its own as well. */
#define JAIL_ALLOW_PERF_EVENT_OPEN 1U /* profilers; kernel.perf_event_paranoid decides what they may count */

/* Reads names with commas between them into `*allow`. Returns 0, or -1 with the first that is not one of them in
 * the message. */
int jail_seccomp_allow(const char *names, unsigned *allow, struct jail_error *err);

#define JAIL_SECCOMP_MAX 512

/* Writes a filter of any rules as a BPF program; what no rule speaks of is allowed. `rest` is the error number for
 * calls of other ABIs and for those newer than JAIL_NEWEST_SYSCALL, or 0: they are allowed, too. A rule's error may be
 * 0: the call does nothing and succeeds. Returns its length, or 0 when it does not fit. */
size_t jail_seccomp_compile(const struct jail_syscall_rule *const *rules, size_t n, int rest,
			    struct sock_filter program[JAIL_SECCOMP_MAX]);


/* Writes the filter as a BPF program, without the rules of the calls in `allow`. Returns its length, or 0 when it
 * does not fit. */
size_t jail_seccomp_program(unsigned allow, struct sock_filter program[JAIL_SECCOMP_MAX]);

/* Writes the program that this process and its forks attach: once for all tasks of a step. Without it, nothing is
 * allowed beyond the rules. Returns 0 or -1. */
int jail_seccomp_prepare(unsigned allow, struct jail_error *err);

/* Attaches it to the calling thread, for good. no_new_privs stays unset, for sudo and su; hence the
 * thread needs CAP_SYS_ADMIN. Returns 0 or -1. */
int jail_seccomp_attach(struct jail_error *err);

#endif
