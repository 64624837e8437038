/* SPDX-License-Identifier: Apache-2.0 */
/* A user namespace gives its maker every capability inside it. What it does not give: the kernel's own
 * settings, unless uid 0 is mapped to uid 0 and a writable /proc can be had. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "attack.h"

#define RDONLY 1UL
#define NOSUID 2UL
#define NODEV 4UL
#define NOEXEC 8UL
#define BIND 4096UL
#define REMOUNT 32UL
#define RECURSIVE 16384UL
#define PRIVATE 0x40000UL
#define DETACHED 2

static int mount_at(const char *source, const char *target, const char *type, unsigned long flags, const char *data)
{
	return (int)syscall(SYS_mount, source, target, type, flags, data);
}

static void say(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY);

	if (fd < 0 || write(fd, text, strlen(text)) < 0)
		held("write %s", path);
	close(fd);
}

/* Root of a new user namespace, which is kernel uid 0 when root does it. */
static void enter(int more)
{
	char map[64];
	unsigned uid = getuid(), gid = getgid();

	if (unshare(CLONE_NEWUSER | CLONE_NEWNS | more))
		held("unshare user and mount namespace");
	say("/proc/self/setgroups", "deny");
	snprintf(map, sizeof(map), "0 %u 1", uid);
	say("/proc/self/uid_map", map);
	snprintf(map, sizeof(map), "0 %u 1", gid);
	say("/proc/self/gid_map", map);
	if (mount_at(NULL, "/", NULL, RECURSIVE | PRIVATE, NULL))
		held("make the mounts private");
	mkdir("/tmp/inner", 0700);
}

static void in_child(void (*attack)(void))
{
	int status;
	pid_t child = fork();

	if (child < 0)
		held("fork");
	if (!child) {
		attack();
		_exit(2);
	}
	if (waitpid(child, &status, 0) != child || status)
		broken("the child ended with status %d", status);
	_exit(0); /* it has spoken */
}

/* As a container runtime has it; then writable, by each of the ways there are. */
static void inner_proc(void)
{
	const unsigned long as_allowed = RDONLY | NOSUID | NODEV | NOEXEC;

	if (mount_at("proc", "/tmp/inner", "proc", 0, NULL)) {
		if (mount_at("proc", "/tmp/inner", "proc", as_allowed, NULL))
			held("mount proc in a user namespace");
		if (mount_at(NULL, "/tmp/inner", NULL, REMOUNT | BIND | NOSUID | NODEV | NOEXEC, NULL) &&
		    mount_at(NULL, "/tmp/inner", NULL, REMOUNT | NOSUID | NODEV | NOEXEC, NULL))
			held("mount -o remount,rw in a user namespace");
	}
	write_back("/tmp/inner/sys/kernel/core_pattern");
}

static void fresh_proc(void)
{
	enter(CLONE_NEWPID);
	in_child(inner_proc);
}

static void fresh_sysfs(void)
{
	enter(CLONE_NEWNET);
	if (mount_at("sysfs", "/tmp/inner", "sysfs", 0, NULL))
		held("mount sysfs in a user namespace");
	write_back("/tmp/inner/kernel/mm/transparent_hugepage/enabled");
}

static void core_pattern(void)
{
	enter(0);
	write_back("/proc/sys/kernel/core_pattern");
}

static void cgroup(void)
{
	enter(CLONE_NEWCGROUP);
	if (mount_at("cgroup", "/tmp/inner", "cgroup", 0, "pids") &&
	    mount_at("cgroup2", "/tmp/inner", "cgroup2", 0, NULL))
		held("mount cgroup in a user namespace");
	write_back("/tmp/inner/release_agent");
}

static void overlay(void)
{
	char path[128];

	enter(0);
	if (mount_at("none", "/tmp/inner", "tmpfs", 0, NULL))
		held("mount tmpfs in a user namespace");
	mkdir("/tmp/inner/upper", 0755);
	mkdir("/tmp/inner/work", 0755);
	mkdir("/tmp/inner/merged", 0755);
	if (mount_at("none", "/tmp/inner/merged", "overlay", 0,
		     "lowerdir=/etc/slurm,upperdir=/tmp/inner/upper,workdir=/tmp/inner/work"))
		held("mount overlay in a user namespace");
	/* Written to the copy; the node's own must not have it. */
	snprintf(path, sizeof(path), "/tmp/inner/merged/%s", given("MARK"));
	close(open(path, O_WRONLY | O_CREAT, 0600));
	snprintf(path, sizeof(path), "/etc/slurm/%s", given("MARK"));
	if (!access(path, F_OK))
		escaped("the node's conf-cache was written through an overlay");
	held("an overlay has its own copy");
}

static void writable_bind(void)
{
	char path[128];

	enter(0);
	if (mount_at("/etc/slurm", "/tmp/inner", NULL, BIND, NULL))
		held("mount --bind in a user namespace");
	if (mount_at(NULL, "/tmp/inner", NULL, REMOUNT | BIND, NULL))
		held("mount -o remount,bind,rw in a user namespace");
	snprintf(path, sizeof(path), "/tmp/inner/%s", given("MARK"));
	if (open(path, O_WRONLY | O_CREAT, 0600) < 0)
		held("open %s", path);
	unlink(path);
	escaped("the node's conf-cache was written");
}

static void uncover(void)
{
	char line[1024], point[256];
	FILE *mounts = fopen("/proc/self/mountinfo", "r");

	enter(0);
	while (mounts && fgets(line, sizeof(line), mounts))
		if (sscanf(line, "%*d %*d %*s %*s %255s", point) == 1 && strcmp(point, "/") &&
		    !syscall(SYS_umount2, point, DETACHED))
			escaped("%s was unmounted in a user namespace", point);
	held("umount in a user namespace");
}

static void join_init(void)
{
	enter(0);
	int namespace = open("/proc/1/ns/mnt", O_RDONLY);
	if (namespace < 0 || setns(namespace, CLONE_NEWNS))
		held("setns from a user namespace");
	escaped("joined process 1 from a user namespace");
}

static struct { struct file_handle handle; unsigned inode, generation; } root = {
	.handle = { .handle_bytes = 8, .handle_type = 1 }, .inode = 2,
};

static void by_handle(void)
{
	enter(0);
	int mount = open("/", O_RDONLY | O_DIRECTORY);
	if (open_by_handle_at(mount, &root.handle, O_RDONLY) < 0)
		held("open_by_handle_at from a user namespace");
	escaped("the root of the volume's file system was opened");
}

const struct attack user_namespace_attacks[] = {
	{ "userns-proc", fresh_proc },
	{ "userns-sysfs", fresh_sysfs },
	{ "userns-core-pattern", core_pattern },
	{ "userns-cgroup", cgroup },
	{ "userns-overlay", overlay },
	{ "userns-writable-bind", writable_bind },
	{ "userns-uncover", uncover },
	{ "userns-join-init", join_init },
	{ "userns-handle", by_handle },
	{ NULL, NULL },
};
