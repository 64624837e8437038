#define _GNU_SOURCE
#include "seccomp.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/seccomp.h>
#include <stdlib.h>

#include "sys.h"

#if defined(__x86_64__) && !defined(__ILP32__)
#define NATIVE AUDIT_ARCH_X86_64
#elif defined(__AARCH64EL__)
#define NATIVE AUDIT_ARCH_AARCH64
#else
#error "the filter is written for x86_64 and aarch64"
#endif

#define MAX_RULES 128
#define ALLOW SECCOMP_RET_ALLOW
#define REFUSE(number) (SECCOMP_RET_ERRNO | (unsigned)(number))

struct program {
	struct sock_filter *code;
	size_t length; /* beyond JAIL_SECCOMP_MAX: it did not fit, nothing was written there */
	int too_far;   /* a jump was longer than its 8 bits */
};

static void put(struct program *p, unsigned code, uint32_t k, unsigned yes, unsigned no)
{
	if (p->length < JAIL_SECCOMP_MAX)
		p->code[p->length] = (struct sock_filter){ (uint16_t)code, (uint8_t)yes, (uint8_t)no, k };
	p->length++;
}

static void load(struct program *p, size_t offset)
{
	put(p, BPF_LD | BPF_W | BPF_ABS, (uint32_t)offset, 0, 0);
}

static void answer(struct program *p, uint32_t what)
{
	put(p, BPF_RET | BPF_K, what, 0, 0);
}

/* The jump at `from` leads to the next instruction, when it is (`yes`) or is not taken. */
static void land(struct program *p, size_t from, int yes)
{
	size_t distance = p->length - from - 1;

	if (distance > 255)
		p->too_far = 1;
	else if (from < JAIL_SECCOMP_MAX)
		*(yes ? &p->code[from].jt : &p->code[from].jf) = (uint8_t)distance;
}

/* Goes on when the test holds; returns the jump that leaves otherwise. */
static size_t put_test(struct program *p, const struct jail_syscall_test *test)
{
	load(p, offsetof(struct seccomp_data, args) + 8 * test->argument);
	put(p, BPF_JMP | BPF_K | (test->what == JAIL_ARGUMENT_HAS ? BPF_JSET : BPF_JEQ), test->value, 0, 0);
	return p->length - 1;
}

static void put_rule(struct program *p, const struct jail_syscall_rule *rule)
{
	size_t leave[2], n = 0;

	for (; n < 2 && rule->tests[n].what != JAIL_ARGUMENT_ANY; n++)
		leave[n] = put_test(p, &rule->tests[n]);
	answer(p, REFUSE(rule->error));
	for (size_t i = 0; i < n; i++)
		land(p, leave[i], rule->tests[i].what == JAIL_ARGUMENT_IS_NOT);
}

/* Rules first..end-1, sorted by number, as a search tree. The kernel runs the program once for each
 * call's number when it is attached, to learn which are always allowed and need no look later: a list
 * from top to bottom would make that ten times as long. */
static void put_tree(struct program *p, const struct jail_syscall_rule **first, const struct jail_syscall_rule **end)
{
	const struct jail_syscall_rule **middle = first + (end - first) / 2;

	while (middle > first && middle[-1]->number == (*middle)->number)
		middle--;
	if (middle == first)
		while (middle < end && (*middle)->number == (*first)->number)
			middle++;
	size_t jump = p->length;
	if (middle < end) {
		put(p, BPF_JMP | BPF_JGE | BPF_K, (uint32_t)(*middle)->number, 0, 0);
		put_tree(p, first, middle);
		land(p, jump, 1);
		put_tree(p, middle, end);
		return;
	}
	put(p, BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)(*first)->number, 0, 0);
	for (const struct jail_syscall_rule **rule = first; rule < end; rule++)
		put_rule(p, *rule);
	land(p, jump, 0);
	answer(p, ALLOW);
}

/* By number, and rules of one call in the order of the list. */
static int compare(const void *a, const void *b)
{
	const struct jail_syscall_rule *left = *(const struct jail_syscall_rule *const *)a;
	const struct jail_syscall_rule *right = *(const struct jail_syscall_rule *const *)b;

	if (left->number != right->number)
		return left->number < right->number ? -1 : 1;
	return left < right ? -1 : left > right;
}

size_t jail_seccomp_program(struct sock_filter code[JAIL_SECCOMP_MAX])
{
	const struct jail_syscall_rule *sorted[MAX_RULES];
	struct program program = { code, 0, 0 };

	if (jail_syscall_n_rules > MAX_RULES)
		return 0;
	for (size_t i = 0; i < jail_syscall_n_rules; i++)
		sorted[i] = &jail_syscall_rules[i];
	qsort(sorted, jail_syscall_n_rules, sizeof(sorted[0]), compare);
	load(&program, offsetof(struct seccomp_data, arch));
	put(&program, BPF_JMP | BPF_JEQ | BPF_K, NATIVE, 1, 0);
	answer(&program, REFUSE(ENOSYS));
	load(&program, offsetof(struct seccomp_data, nr));
	/* x32 has the native architecture and numbers from 0x40000000 on: newer than anything. */
	put(&program, BPF_JMP | BPF_JGT | BPF_K, JAIL_NEWEST_SYSCALL, 0, 1);
	answer(&program, REFUSE(ENOSYS));
	put_tree(&program, sorted, sorted + jail_syscall_n_rules);
	return program.too_far || program.length > JAIL_SECCOMP_MAX ? 0 : program.length;
}

int jail_seccomp_attach(struct jail_error *err)
{
	struct sock_filter code[JAIL_SECCOMP_MAX];
	size_t length = jail_seccomp_program(code);
	const struct sock_fprog program = { (unsigned short)length, code };

	if (!length)
		return jail_fail(err, NULL, 0, "the system call filter does not fit; this is a mistake in seccomp_rules.c");
	/* SPEC_ALLOW: before Linux 5.16 a filter without it switches speculation off for the process (SSBD,
	 * STIBP), which numerical code pays for. It would shield a sandbox from code that it runs within
	 * itself; a job's code is the job's, and any process can still ask for it with prctl. */
	if (sys_seccomp(SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_SPEC_ALLOW, &program))
		return jail_fail(err, "seccomp", errno, errno == EACCES ? "a system call filter needs CAP_SYS_ADMIN"
				 : errno == EINVAL ? "this kernel has no system call filters (CONFIG_SECCOMP_FILTER)"
				 : "cannot attach the system call filter");
	return 0;
}
