/* SPDX-License-Identifier: Apache-2.0 */
/* Ways out through paths: what /proc shows of processes outside, kept descriptors, old roots. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "attack.h"

static void nested_chroot(void)
{
	mkdir("/tmp/nested", 0700);
	int before = open("/", O_RDONLY | O_DIRECTORY);

	if (before < 0 || chroot("/tmp/nested") || fchdir(before))
		held("chroot below the root");
	for (int i = 0; i < 64; i++)
		if (chdir(".."))
			held("chdir ..");
	if (chroot("."))
		held("chroot .");
	read_canary_at(AT_FDCWD, "");
	errno = 0;
	held("still the jail's root");
}

static void dot_dot(void)
{
	char path[300] = ".";

	for (int i = 0; i < 64; i++)
		strcat(path, "/..");
	read_canary_at(AT_FDCWD, path);
	for (int i = 0; i < 64; i++)
		if (chdir(".."))
			held("chdir ..");
	read_canary_at(AT_FDCWD, ".");
	held("open %s below ..", given("CANARY"));
}

static int is_unnamed_pair(int fd)
{
	struct sockaddr_un own, peer;
	socklen_t own_size = sizeof(own), peer_size = sizeof(peer);

	return !getsockname(fd, (struct sockaddr *)&own, &own_size) && own.sun_family == AF_UNIX &&
	       own_size == sizeof(sa_family_t) && !getpeername(fd, (struct sockaddr *)&peer, &peer_size);
}

static void kept_descriptors(void)
{
	for (int fd = 0; fd < 65536; fd++) {
		struct stat st;
		char path[64], target[256] = "?";
		if (fstat(fd, &st))
			continue;
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		ssize_t length = readlink(path, target, sizeof(target) - 1);
		target[length > 0 ? length : 0] = '\0';
		if (S_ISDIR(st.st_mode)) {
			for (int i = 0; i < 64 && !fchdir(fd) && !chdir(".."); i++)
				;
			read_canary_at(AT_FDCWD, ".");
		}
		/* PMI's own socket is meant to be there: a pair that only slurmstepd holds the other end of. */
		if (fd > 2 && !is_unnamed_pair(fd))
			escaped("descriptor %d, %s, was kept", fd, target);
	}
	errno = 0;
	held("none above 2 but PMI's");
}

static void visit_root(pid_t pid)
{
	char prefix[64];

	snprintf(prefix, sizeof(prefix), "/proc/%d/root", (int)pid);
	read_canary_at(AT_FDCWD, prefix);
}

static void visit_cwd(pid_t pid)
{
	char prefix[64];

	snprintf(prefix, sizeof(prefix), "/proc/%d/cwd/../../../../..", (int)pid);
	read_canary_at(AT_FDCWD, prefix);
	snprintf(prefix, sizeof(prefix), "/proc/%d/task/%d/root", (int)pid, (int)pid);
	read_canary_at(AT_FDCWD, prefix);
}

static void visit_fd(pid_t pid)
{
	char path[320];

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	DIR *dir = opendir(path);
	for (struct dirent *entry; dir && (entry = readdir(dir));) {
		char target[256];
		snprintf(path, sizeof(path), "/proc/%d/fd/%s", (int)pid, entry->d_name);
		ssize_t length = entry->d_name[0] == '.' ? 0 : readlink(path, target, sizeof(target) - 1);
		if (length <= 0 || target[0] != '/')
			continue;
		target[length] = '\0';
		int fd = open(path, O_RDONLY | O_NONBLOCK);
		if (fd >= 0)
			escaped("%s, which is %s, was opened", path, target);
	}
	if (dir)
		closedir(dir);
}

static void visit_memory(pid_t pid)
{
	static const char *const names[] = { "mem", "environ", "maps", "stack", "syscall", "auxv" };

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		char path[64], byte;
		snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, names[i]);
		int fd = open(path, O_RDONLY);
		/* mem can be opened by who may trace; address 0 is never mapped, so no read of it. */
		if (fd >= 0 && (!strcmp(names[i], "mem") || read(fd, &byte, 1) == 1))
			escaped("%s can be read", path);
		if (fd >= 0)
			close(fd);
	}
}

static void proc_root(void)
{
	for_each_outside(visit_root);
	held("open /proc/*/root%s", given("CANARY"));
}

static void proc_cwd(void)
{
	for_each_outside(visit_cwd);
	held("open /proc/*/cwd/..");
}

static void proc_fd(void)
{
	for_each_outside(visit_fd);
	held("open /proc/*/fd/*");
}

static void proc_memory(void)
{
	for_each_outside(visit_memory);
	held("open /proc/*/mem");
}

/* Files of the kernel as a whole. Without a capability in hand, uid 0 alone may write most of them. */
static void core_pattern(void)
{
	write_back("/proc/sys/kernel/core_pattern");
}

static void modprobe_path(void)
{
	write_back("/proc/sys/kernel/modprobe");
}

static void uevent_helper(void)
{
	write_back("/sys/kernel/uevent_helper");
}

/* Opened only: a byte written to it does what it says. */
static void open_to_write(const char *const paths[])
{
	int refused = 0;

	for (; *paths; paths++) {
		if (open(*paths, O_WRONLY) >= 0)
			escaped("%s can be written", *paths);
		if (errno != ENOENT)
			refused = errno;
	}
	errno = refused;
	if (!refused)
		absent("none of these files is there");
	held("open for writing");
}

static void sysrq_trigger(void)
{
	open_to_write((const char *const[]){ "/proc/sysrq-trigger", "/proc/sys/kernel/sysrq", NULL });
}

static void drop_caches(void)
{
	open_to_write((const char *const[]){
		"/proc/sys/vm/drop_caches", "/proc/sys/vm/panic_on_oom", "/proc/sys/kernel/panic",
		"/proc/sys/kernel/randomize_va_space", "/proc/sys/fs/suid_dumpable", "/proc/irq/default_smp_affinity",
		"/proc/bus/pci/00/00.0", "/proc/fs/ext4/vda/options", NULL });
}

static void sys_write(void)
{
	open_to_write((const char *const[]){
		"/sys/kernel/mm/transparent_hugepage/enabled", "/sys/power/state", "/sys/block/vda/queue/scheduler",
		"/sys/devices/system/cpu/cpu1/online", "/sys/kernel/profiling", "/sys/module/kernel/parameters/panic",
		"/sys/bus/pci/rescan", "/sys/bus/virtio/drivers_probe", NULL });
}

static void kernel_memory(void)
{
	static const char *const paths[] = { "/proc/kcore", "/proc/kmsg", "/proc/kpageflags", NULL };

	for (const char *const *path = paths; *path; path++) {
		char byte;
		int fd = open(*path, O_RDONLY | O_NONBLOCK);
		if (fd >= 0 && (!strcmp(*path, "/proc/kmsg") || read(fd, &byte, 1) == 1))
			escaped("%s can be read", *path);
	}
	held("open /proc/kcore and the like");
}

static void keys_listed(void)
{
	char line[256];
	FILE *keys = fopen("/proc/keys", "r");

	if (!keys)
		held("open /proc/keys");
	while (keys && fgets(line, sizeof(line), keys))
		if (strstr(line, "escape-canary"))
			escaped("/proc/keys shows %s", line);
	errno = 0;
	held("/proc/keys does not show the outside's key");
}

const struct attack proc_attacks[] = {
	{ "nested-chroot", nested_chroot },
	{ "dot-dot", dot_dot },
	{ "kept-descriptors", kept_descriptors },
	{ "proc-root", proc_root },
	{ "proc-cwd", proc_cwd },
	{ "proc-fd", proc_fd },
	{ "proc-memory", proc_memory },
	{ "core-pattern", core_pattern },
	{ "modprobe-path", modprobe_path },
	{ "uevent-helper", uevent_helper },
	{ "sysrq-trigger", sysrq_trigger },
	{ "proc-sys-write", drop_caches },
	{ "sys-write", sys_write },
	{ "kernel-memory", kernel_memory },
	{ "keys-listed", keys_listed },
	{ NULL, NULL },
};
