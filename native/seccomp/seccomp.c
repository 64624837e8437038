/* SPDX-License-Identifier: Apache-2.0 */
/* Compiles the jail's seccomp filter, a program in BPF, from seccomp_rules.c and attaches it to a process. Files of
 * this folder, other libraries in native/ and spank_jail/ call it. */
#define _GNU_SOURCE
#include "seccomp.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "native/base/sys.h"

#if defined(__x86_64__) && !defined(__ILP32__)
#define NATIVE AUDIT_ARCH_X86_64
#elif defined(__AARCH64EL__)
#define NATIVE AUDIT_ARCH_AARCH64
#else
#error "the filter is written for x86_64 and aarch64"
#endif

#define MAX_RULES 64
#define ALLOW SECCOMP_RET_ALLOW
#define REFUSE(number) (SECCOMP_RET_ERRNO | (unsigned)(number))

/* Numbers from `first` up to the next segment's: all have one answer, or they are one call with tests. */
struct segment {
	uint32_t first;
	uint32_t answer;
	const struct jail_syscall_rule **rules, **end; /* NULL: `answer` */
};

/* Each call begins a segment and ends it; there are one before all and one after. */
#define MAX_SEGMENTS (2 * MAX_RULES + 2)

/* Each rule has at most two jumps and each border of segments one, with two ways; one more looks at the
 * architecture. */
#define MAX_EXITS (4 * MAX_RULES + 2 * MAX_SEGMENTS + 2)

struct program {
	struct sock_filter *code;
	size_t length; /* beyond JAIL_SECCOMP_MAX: it did not fit, nothing was written there */
	bool too_far;  /* a jump was longer than its 8 bits */
	/* Jumps that lead to an answer. All answers stand at the end, once each: the kernel compiles the
	 * program for each task. */
	struct { size_t from; bool yes; uint32_t answer; } exits[MAX_EXITS];
	size_t n_exits;
};

static size_t put(struct program *p, unsigned code, uint32_t k)
{
	if (p->length < JAIL_SECCOMP_MAX)
		p->code[p->length] = (struct sock_filter){ (uint16_t)code, 0, 0, k };
	return p->length++;
}

/* The jump at `from` leads to the next instruction, when it is taken (`yes`) or is not. */
static void land(struct program *p, size_t from, bool yes)
{
	size_t distance = p->length - from - 1;

	if (distance > 255)
		p->too_far = true;
	else if (from < JAIL_SECCOMP_MAX)
		*(yes ? &p->code[from].jt : &p->code[from].jf) = (uint8_t)distance;
}

static void leave(struct program *p, size_t from, bool yes, uint32_t answer)
{
	p->exits[p->n_exits].from = from;
	p->exits[p->n_exits].yes = yes;
	p->exits[p->n_exits++].answer = answer;
}

static void put_answers(struct program *p)
{
	for (size_t i = 0; i < p->n_exits; i++) {
		uint32_t answer = p->exits[i].answer;
		bool seen = false;
		for (size_t j = 0; j < i && !seen; j++)
			seen = p->exits[j].answer == answer;
		if (seen)
			continue;
		for (size_t j = i; j < p->n_exits; j++)
			if (p->exits[j].answer == answer)
				land(p, p->exits[j].from, p->exits[j].yes);
		put(p, BPF_RET | BPF_K, answer);
	}
}

static size_t n_tests(const struct jail_syscall_rule *rule)
{
	return rule->tests[0].what == JAIL_ARGUMENT_ANY ? 0 : rule->tests[1].what == JAIL_ARGUMENT_ANY ? 1 : 2;
}

/* Refuses when all tests hold; else goes on with the next instruction, or when `last` allows. */
static void put_tests(struct program *p, const struct jail_syscall_rule *rule, bool loaded, bool last)
{
	size_t n = n_tests(rule), jump[2];

	for (size_t i = 0; i < n; i++) {
		const struct jail_syscall_test *test = &rule->tests[i];
		bool holds = test->what != JAIL_ARGUMENT_IS_NOT;
		if (i || !loaded)
			put(p, BPF_LD | BPF_W | BPF_ABS,
			    (uint32_t)(offsetof(struct seccomp_data, args) + 8 * test->argument));
		jump[i] = put(p, BPF_JMP | BPF_K | (test->what == JAIL_ARGUMENT_HAS ? BPF_JSET : BPF_JEQ), test->value);
		if (i + 1 == n)
			leave(p, jump[i], holds, REFUSE(rule->error));
		if (last)
			leave(p, jump[i], !holds, ALLOW);
	}
	for (size_t i = 0; !last && i < n; i++)
		land(p, jump[i], rule->tests[i].what == JAIL_ARGUMENT_IS_NOT);
}

/* The numbers are cut into segments, after which stands the end of the last. Neighbours with one answer are one:
 * kexec_file_load and bpf, the three of keyrings and of io_uring. The kernel compiles the program anew for each task, 0.3 us an instruction. */
static size_t cut(const struct jail_syscall_rule **sorted, size_t n, uint32_t others, struct segment *segments)
{
	size_t used = 1, next;

	segments[0] = (struct segment){ .answer = ALLOW };
	for (size_t i = 0; i < n; i = next) {
		const struct jail_syscall_rule *rule = sorted[i];
		struct segment *last = &segments[used - 1];
		struct segment call = { .first = (uint32_t)rule->number, .answer = REFUSE(rule->error) };
		if (call.first > JAIL_NEWEST_SYSCALL)
			break;
		for (next = i + 1; next < n && sorted[next]->number == rule->number;)
			next++;
		if (n_tests(rule)) {
			call.rules = &sorted[i];
			call.end = &sorted[next];
		}
		/* The segment after the call before it begins here: it is empty. */
		if (last->first == call.first && used > 1)
			used--;
		last = &segments[used - 1];
		if (call.rules || last->rules || last->answer != call.answer)
			segments[used++] = call;
		segments[used++] = (struct segment){ .first = call.first + 1, .answer = ALLOW };
	}
	/* x32 has the native architecture and numbers from 0x40000000 on: newer than anything. */
	if (segments[used - 1].first > JAIL_NEWEST_SYSCALL)
		used--;
	segments[used++] = (struct segment){ .first = JAIL_NEWEST_SYSCALL + 1, .answer = others };
	segments[used].first = segments[used - 1].first + 1;
	return used;
}

/* Where segments first..end-1, two or more, are divided so that both parts have about as many numbers. */
static const struct segment *divide(const struct segment *first, const struct segment *end)
{
	uint32_t middle = first->first + (end->first - first->first) / 2;
	const struct segment *after = first + 1;

	while (after + 1 < end && after->first < middle)
		after++;
	return after > first + 1 && after->first - middle > middle - after[-1].first ? after - 1 : after;
}

static void put_tree(struct program *p, const struct segment *first, const struct segment *end);

/* The jump at `from` leads to segments first..end-1. */
static void put_branch(struct program *p, size_t from, bool yes, const struct segment *first, const struct segment *end)
{
	if (end - first == 1 && !first->rules) {
		leave(p, from, yes, first->answer);
		return;
	}
	land(p, from, yes);
	put_tree(p, first, end);
}

/* Segments first..end-1, two or more or one with rules, as a search tree. The kernel runs the program once for each
 * call's number when it is attached, to learn which are always allowed and need no look later: a list from top to bottom
 * would make that ten times as long. So the more numbers a segment has, the sooner it is found. */
static void put_tree(struct program *p, const struct segment *first, const struct segment *end)
{
	if (end - first == 1) {
		for (const struct jail_syscall_rule **rule = first->rules; rule < first->end; rule++) {
			bool loaded = rule > first->rules && n_tests(rule[-1]) == 1 &&
				      rule[-1]->tests[0].argument == (*rule)->tests[0].argument;
			put_tests(p, *rule, loaded, rule + 1 == first->end);
		}
		return;
	}
	const struct segment *middle = divide(first, end);
	size_t jump = put(p, BPF_JMP | BPF_JGE | BPF_K, middle->first);
	put_branch(p, jump, false, first, middle);
	put_branch(p, jump, true, middle, end);
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

/* Its bit is its place. */
static const char *const allowable[] = { "perf_event_open" };

#define N_ALLOWABLE (sizeof(allowable) / sizeof(allowable[0]))

int jail_seccomp_allow(const char *names, unsigned *allow, struct jail_error *err)
{
	for (const char *rest = names;; rest++) {
		size_t length = strcspn(rest, ","), i = 0;
		while (i < N_ALLOWABLE && (strlen(allowable[i]) != length || memcmp(allowable[i], rest, length)))
			i++;
		if (i == N_ALLOWABLE)
			return jail_fail(err, NULL, 0, "\"%.*s\" is no system call that can be allowed; there is: "
					 "perf_event_open", (int)(length > 64 ? 64 : length), rest);
		*allow |= 1U << i;
		rest += length;
		if (!*rest)
			return 0;
	}
}

static bool is_allowed(unsigned allow, const struct jail_syscall_rule *rule)
{
	for (size_t i = 0; i < N_ALLOWABLE; i++)
		if ((allow & 1U << i) && !strcmp(rule->name, allowable[i]))
			return true;
	return false;
}

size_t jail_seccomp_compile(const struct jail_syscall_rule *const *rules, size_t n, int rest,
			    struct sock_filter code[JAIL_SECCOMP_MAX])
{
	const struct jail_syscall_rule *sorted[MAX_RULES];
	struct segment segments[MAX_SEGMENTS + 1];
	struct program program = { .code = code };
	uint32_t others = rest ? REFUSE(rest) : ALLOW;

	if (n > MAX_RULES)
		return 0;
	memcpy(sorted, rules, n * sizeof(sorted[0]));
	qsort(sorted, n, sizeof(sorted[0]), compare);
	put(&program, BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch));
	leave(&program, put(&program, BPF_JMP | BPF_JEQ | BPF_K, NATIVE), false, others);
	put(&program, BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
	put_tree(&program, segments, segments + cut(sorted, n, others, segments));
	put_answers(&program);
	return program.too_far || program.length > JAIL_SECCOMP_MAX ? 0 : program.length;
}

size_t jail_seccomp_program(unsigned allow, struct sock_filter code[JAIL_SECCOMP_MAX])
{
	const struct jail_syscall_rule *rules[MAX_RULES];
	size_t n = 0;

	if (jail_syscall_n_rules > MAX_RULES)
		return 0;
	for (size_t i = 0; i < jail_syscall_n_rules; i++)
		if (!is_allowed(allow, &jail_syscall_rules[i]))
			rules[n++] = &jail_syscall_rules[i];
	return jail_seccomp_compile(rules, n, ENOSYS, code);
}

static struct sock_filter prepared[JAIL_SECCOMP_MAX];
static size_t prepared_length;

int jail_seccomp_prepare(unsigned allow, struct jail_error *err)
{
	prepared_length = jail_seccomp_program(allow, prepared);
	return prepared_length ? 0 : jail_fail(err, NULL, 0, "the system call filter does not fit; this is a mistake in "
					       "seccomp_rules.c");
}

int jail_seccomp_attach(struct jail_error *err)
{
	if (!prepared_length && jail_seccomp_prepare(0, err))
		return -1;
	const struct sock_fprog program = { (unsigned short)prepared_length, prepared };
	/* SPEC_ALLOW: before Linux 5.16 a filter without it switches speculation off for the process (SSBD,
	 * STIBP), which numerical code pays for. It would shield a sandbox from code that it runs within
	 * itself; a job's code is the job's, and any process can still ask for it with prctl. */
	if (sys_seccomp(SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_SPEC_ALLOW, &program))
		return jail_fail(err, "seccomp", errno, errno == EACCES ? "a system call filter needs CAP_SYS_ADMIN"
				 : errno == EINVAL ? "this kernel has no system call filters (CONFIG_SECCOMP_FILTER)"
				 : "cannot attach the system call filter");
	return 0;
}
