/* SPDX-License-Identifier: Apache-2.0 */
/* System calls that change or read the kernel as a whole. Each is asked with arguments that it refuses
 * only after it has asked for permission: another answer than EPERM says that it may be used. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/keyctl.h>
#include <linux/perf_event.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/io.h>
#include <sys/mman.h>
#include <sys/swap.h>
#include <sys/syscall.h>
#include <sys/timex.h>
#include <time.h>
#include <unistd.h>

#include "attack.h"

#define REFUSED(number) ((number) == EPERM || (number) == EACCES)

/* `result` is of a call that cannot succeed. */
static _Noreturn void judge(const char *what, long result)
{
	if (result < 0 && errno == ENOSYS)
		absent("%s", what);
	if (result < 0 && REFUSED(errno))
		held("%s", what);
	escaped("%s is allowed (%s)", what, result < 0 ? strerrorname_np(errno) : "it succeeded");
}

static void load_module(void)
{
	char nothing[64] = "no module";

	judge("init_module", syscall(SYS_init_module, nothing, sizeof(nothing), ""));
}

static void load_module_file(void)
{
	int fd = open("/etc/passwd", O_RDONLY);

	judge("finit_module", syscall(SYS_finit_module, fd, "", 0));
}

static void delete_module(void)
{
	judge("delete_module", syscall(SYS_delete_module, "no_such_module", O_NONBLOCK));
}

static void load_kernel(void)
{
	/* Flags that no version knows. */
	judge("kexec_load", syscall(SYS_kexec_load, 0, 0, NULL, 0x8000000UL));
}

static void load_kernel_file(void)
{
	judge("kexec_file_load", syscall(SYS_kexec_file_load, -1, -1, 0, "", 0x80000000UL));
}

/* The number of the magic is wrong: nothing is ever rebooted by it. */
static void reboot_machine(void)
{
	judge("reboot", syscall(SYS_reboot, 0, 0, 0, NULL));
}

static void swap_off(void)
{
	judge("swapoff", swapoff("/no/such/file"));
}

static void accounting(void)
{
	judge("acct", acct("/no/such/file"));
}

static void set_time(void)
{
	struct timex now = { .modes = 0 };

	if (adjtimex(&now) < 0)
		broken("adjtimex");
	now.modes = ADJ_STATUS; /* as it is */
	judge("adjtimex", adjtimex(&now));
}

static void io_ports(void)
{
	judge("iopl", iopl(3));
}

static void host_name(void)
{
	char name[256];

	if (gethostname(name, sizeof(name)))
		broken("gethostname");
	judge("sethostname", sethostname(name, strlen(name)));
}

static void bpf_program(void)
{
	/* r0 = 0; exit */
	struct bpf_insn code[] = { { .code = 0xb7 }, { .code = 0x95 } };
	union bpf_attr attributes;

	memset(&attributes, 0, sizeof(attributes));
	attributes.prog_type = BPF_PROG_TYPE_KPROBE;
	attributes.insns = (__u64)(unsigned long)code;
	attributes.insn_cnt = 2;
	attributes.license = (__u64)(unsigned long)"GPL";
	long loaded = syscall(SYS_bpf, BPF_PROG_LOAD, &attributes, sizeof(attributes));
	if (loaded >= 0)
		escaped("a program of type kprobe was loaded");
	memset(&attributes, 0, sizeof(attributes));
	attributes.map_type = BPF_MAP_TYPE_ARRAY;
	attributes.key_size = attributes.value_size = 4;
	attributes.max_entries = 1;
	judge("bpf(BPF_MAP_CREATE)", syscall(SYS_bpf, BPF_MAP_CREATE, &attributes, sizeof(attributes)));
}

static void perf_events(void)
{
	struct perf_event_attr attributes;

	memset(&attributes, 0, sizeof(attributes));
	attributes.size = sizeof(attributes);
	attributes.type = PERF_TYPE_SOFTWARE;
	attributes.config = PERF_COUNT_SW_CPU_CLOCK;
	/* Every process on processor 0. */
	judge("perf_event_open", syscall(SYS_perf_event_open, &attributes, -1, 0, -1, 0));
}

static void io_uring(void)
{
	char parameters[120] = "";

	judge("io_uring_setup", syscall(SYS_io_uring_setup, 1, parameters));
}

static void user_fault(void)
{
	/* Without UFFD_USER_MODE_ONLY: faults inside the kernel, what exploits want. */
	judge("userfaultfd", syscall(SYS_userfaultfd, O_CLOEXEC));
}

static struct { struct file_handle handle; unsigned inode, generation; } by_inode;

/* The handle of a file of ext4, whose generation 0 fits any: the volume's file system has more than the
 * jail's tree. */
static void open_by_handle(unsigned inode)
{
	int mount = open("/", O_RDONLY | O_DIRECTORY);

	by_inode.handle.handle_bytes = 8;
	by_inode.handle.handle_type = 1; /* FILEID_INO32_GEN */
	by_inode.inode = inode;
	int fd = open_by_handle_at(mount, &by_inode.handle, O_RDONLY);
	if (fd < 0)
		held("open_by_handle_at, inode %u", inode);
	escaped("inode %u of the volume's file system was opened", inode);
}

static void handle_of_the_root(void)
{
	open_by_handle(2);
}

static void handle_of_the_canary(void)
{
	open_by_handle((unsigned)given_number("VOLUME_CANARY_INODE"));
}

/* Runs outside, before the others: the user keyring is one for every root of the machine. */
static void plant_key(void)
{
	const char *secret = given("SECRET");

	if (syscall(SYS_add_key, "user", "escape-canary", secret, strlen(secret), KEY_SPEC_USER_KEYRING) < 0)
		broken("add_key");
	errno = 0;
	held("planted");
}

static void keyring(void)
{
	char secret[64] = "";
	/* Who has the keyring in their own may read what is in it. */
	syscall(SYS_keyctl, KEYCTL_LINK, KEY_SPEC_USER_KEYRING, KEY_SPEC_SESSION_KEYRING, 0, 0);
	long key = syscall(SYS_keyctl, KEYCTL_SEARCH, KEY_SPEC_USER_KEYRING, "user", "escape-canary", 0);

	if (key < 0 || syscall(SYS_keyctl, KEYCTL_READ, key, secret, sizeof(secret) - 1) < 0)
		held("keyctl");
	escaped("a key of the outside holds %s", secret);
}


/* Who opens such a file outside, as a backup of the volume, waits until the lease is broken. */
static void take_lease(void)
{
	char path[] = "/escape/out/lease-XXXXXX";
	int fd = mkstemp(path);

	if (fd < 0)
		broken("mkstemp %s", path);
	(void)unlink(path);
	if (!fcntl(fd, F_SETLEASE, F_WRLCK))
		escaped("a file of the volume is leased");
	held("fcntl F_SETLEASE");
}

/* Of its own uid, which is root's on the whole machine: MOST leaves enough for whatever else runs there. */
static void queue_signals(void)
{
	const union sigval none = { 0 };
	long most = strtol(given("MOST"), NULL, 10), n = 0;
	sigset_t all;

	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, NULL);
	while (n < most && !sigqueue(getpid(), SIGRTMIN, none))
		n++;
	if (n < most && errno != EAGAIN)
		broken("sigqueue");
	printf("stays\n");
	fflush(stdout);
	/* Whatever becomes free is taken. */
	for (int i = 0; i < 60000 && access(given("OVER"), F_OK); i++) {
		while (n < most && !sigqueue(getpid(), SIGRTMIN, none))
			n++;
		usleep(1000);
	}
	_exit(0);
}

/* Outside, as a daemon would. */
static void have_signal(void)
{
	struct sigevent event = { .sigev_notify = SIGEV_NONE };
	timer_t timer;

	if (timer_create(CLOCK_MONOTONIC, &event, &timer))
		escaped("root outside has no room for a signal or a timer: %s", strerrorname_np(errno));
	errno = 0;
	held("root outside has room for a timer");
}

const struct attack kernel_attacks[] = {
	{ "queue-signals", queue_signals },
	{ "have-signal", have_signal },
	{ "take-lease", take_lease },
	{ "load-module", load_module },
	{ "load-module-file", load_module_file },
	{ "delete-module", delete_module },
	{ "kexec-load", load_kernel },
	{ "kexec-file-load", load_kernel_file },
	{ "reboot", reboot_machine },
	{ "swapoff", swap_off },
	{ "acct", accounting },
	{ "set-time", set_time },
	{ "io-ports", io_ports },
	{ "set-hostname", host_name },
	{ "bpf", bpf_program },
	{ "perf-events", perf_events },
	{ "io-uring", io_uring },
	{ "userfaultfd", user_fault },
	{ "handle-of-the-root", handle_of_the_root },
	{ "handle-of-the-canary", handle_of_the_canary },
	{ "plant-key", plant_key },
	{ "keyring", keyring },
	{ NULL, NULL },
};
