/* SPDX-License-Identifier: Apache-2.0 */
/* Mounts: the kernel's file systems anew, the outside's trees, and what the plan laid over the jail. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "attack.h"

/* glibc's <sys/mount.h> and the kernel's header do not go together in every release. */
static int mount_at(const char *source, const char *target, const char *type, unsigned long flags)
{
	return (int)syscall(SYS_mount, source, target, type, flags, NULL);
}

#define RDONLY 1UL
#define REMOUNT 32UL
#define BIND 4096UL
#define RECURSIVE 16384UL
#define PRIVATE 0x40000UL
#define DETACHED 2

/* Where it may, an attack spoils a copy of the namespace: the job's is the other attacks', too. */
static void copy_namespace(void)
{
	if (!unshare(CLONE_NEWNS) && mount_at(NULL, "/", NULL, RECURSIVE | PRIVATE))
		broken("cannot make a private copy of the namespace");
}

static void place(const char *path)
{
	if (mkdir(path, 0700) && errno != EEXIST)
		broken("mkdir %s", path);
}

/* Mounts `type` and then tries to write `file` in it. */
static void mount_and_write(const char *type, const char *source, const char *file)
{
	char path[256];

	copy_namespace();
	place("/tmp/mounted");
	if (mount_at(source, "/tmp/mounted", type, 0))
		held("mount %s", type);
	snprintf(path, sizeof(path), "/tmp/mounted/%s", file);
	if (open(path, O_WRONLY) >= 0)
		escaped("%s of a new %s can be written", file, type);
	escaped("a new %s was mounted (%s: %s)", type, file, strerrorname_np(errno));
}

static void new_proc(void)
{
	mount_and_write("proc", "proc", "sys/kernel/core_pattern");
}

static void new_sysfs(void)
{
	mount_and_write("sysfs", "sysfs", "kernel/mm/transparent_hugepage/enabled");
}

static void new_devtmpfs(void)
{
	mount_and_write("devtmpfs", "devtmpfs", "kmsg");
}

static void new_cgroup(void)
{
	mount_and_write("cgroup2", "cgroup2", "cgroup.procs");
}

static void new_tracefs(void)
{
	mount_and_write("tracefs", "tracefs", "tracing_on");
}

static void binfmt_misc(void)
{
	mount_and_write("binfmt_misc", "binfmt_misc", "register");
}

static void release_agent(void)
{
	copy_namespace();
	place("/tmp/cgroup");
	/* A hierarchy that is there: a new one would stay with the kernel. */
	if (syscall(SYS_mount, "cgroup", "/tmp/cgroup", "cgroup", 0, "pids") &&
	    syscall(SYS_mount, "cgroup", "/tmp/cgroup", "cgroup", 0, "memory"))
		held("mount cgroup");
	write_back("/tmp/cgroup/release_agent");
}

static void fuse(void)
{
	copy_namespace();
	place("/tmp/fuse");
	mknod("/dev/fuse-of-mine", S_IFCHR | 0600, makedev(10, 229));
	int fd = open("/dev/fuse", O_RDWR);
	if (fd < 0)
		fd = open("/dev/fuse-of-mine", O_RDWR);
	unlink("/dev/fuse-of-mine");
	if (fd < 0)
		held("open /dev/fuse");
	char options[80];
	snprintf(options, sizeof(options), "fd=%d,rootmode=40000,user_id=0,group_id=0", fd);
	if (syscall(SYS_mount, "fuse", "/tmp/fuse", "fuse", 0, options))
		held("mount fuse");
	escaped("a file system whose server is the task's own was mounted");
}

static void disk_mounted(void)
{
	struct stat st;
	int context, mount;

	copy_namespace();
	if (stat("/", &st))
		broken("stat /");
	unlink("/dev/disk-of-mine");
	if (mknod("/dev/disk-of-mine", S_IFBLK | 0600, st.st_dev))
		held("mknod of the volume's disk");
	context = (int)syscall(SYS_fsopen, "ext4", 0);
	if (context < 0)
		held("fsopen ext4");
	if (syscall(SYS_fsconfig, context, FSCONFIG_SET_STRING, "source", "/dev/disk-of-mine", 0) ||
	    syscall(SYS_fsconfig, context, FSCONFIG_CMD_CREATE, NULL, NULL, 0) ||
	    (mount = (int)syscall(SYS_fsmount, context, 0, 0)) < 0) {
		unlink("/dev/disk-of-mine");
		held("fsconfig, fsmount");
	}
	unlink("/dev/disk-of-mine");
	escaped("the disk below the volume was mounted");
}

static void open_tree_of_init(void)
{
	copy_namespace();
	int tree = (int)syscall(SYS_open_tree, AT_FDCWD, "/proc/1/root", OPEN_TREE_CLONE | AT_RECURSIVE);

	if (tree < 0)
		held("open_tree /proc/1/root");
	read_canary_at(tree, ".");
	escaped("a copy of the root of process 1 was made");
}

static void bind_init_root(void)
{
	copy_namespace();
	place("/tmp/bound");
	if (mount_at("/proc/1/root", "/tmp/bound", NULL, BIND | RECURSIVE))
		held("mount --rbind /proc/1/root");
	read_canary_at(AT_FDCWD, "/tmp/bound");
	escaped("the root of process 1 was bound");
}

static void bind_over_plan(void)
{
	static const char *const targets[] = { "/etc/slurm", "/run/munge", "/proc", "/dev", "/sys", NULL };

	copy_namespace();
	for (const char *const *target = targets; *target; target++)
		if (!mount_at("/tmp", *target, NULL, BIND))
			escaped("%s was laid over", *target);
	held("mount --bind over the plan's targets");
}

static void umount_plan(void)
{
	static const char *const targets[] = { "/etc/slurm", "/run/munge", "/proc", "/sys", "/var/spool/slurmd", NULL };

	copy_namespace();
	for (const char *const *target = targets; *target; target++)
		if (!syscall(SYS_umount2, *target, DETACHED))
			escaped("%s was unmounted", *target);
	held("umount of the plan's targets");
}

/* Every mount below /proc and /sys: the masks of level capabilities, where there are any. */
static void umount_masks(void)
{
	char line[1024], point[256];
	FILE *mounts = fopen("/proc/self/mountinfo", "r");

	copy_namespace();
	while (mounts && fgets(line, sizeof(line), mounts))
		if (sscanf(line, "%*d %*d %*s %*s %255s", point) == 1 &&
		    (!strncmp(point, "/proc", 5) || !strncmp(point, "/sys", 4)) &&
		    !syscall(SYS_umount2, point, DETACHED))
			escaped("%s was unmounted", point);
	held("umount below /proc and /sys");
}

/* conf-cache is the node's own, read-only in the jail; plugstack.conf in it names what slurmstepd loads. */
static void write_to_conf_cache(const char *how)
{
	char path[256];

	snprintf(path, sizeof(path), "/etc/slurm/%s", given("MARK"));
	if (open(path, O_WRONLY | O_CREAT | O_EXCL, 0600) < 0)
		held("%s, then open %s", how, path);
	unlink(path);
	escaped("%s: the node's conf-cache was written", how);
}

static void remount_writable(void)
{
	copy_namespace();
	if (mount_at(NULL, "/etc/slurm", NULL, REMOUNT | BIND))
		held("mount -o remount,bind,rw /etc/slurm");
	write_to_conf_cache("remount");
}

static void setattr_writable(void)
{
	struct mount_attr attributes = { .attr_clr = MOUNT_ATTR_RDONLY };

	copy_namespace();
	if (syscall(SYS_mount_setattr, AT_FDCWD, "/etc/slurm", 0, &attributes, sizeof(attributes)))
		held("mount_setattr /etc/slurm");
	write_to_conf_cache("mount_setattr");
}

static void conf_cache_written(void)
{
	write_to_conf_cache("as it is");
}

static void remount_sys(void)
{
	copy_namespace();
	/* The mount, then the file system itself, which others share: so it is set back. */
	if (mount_at(NULL, "/sys", NULL, REMOUNT | BIND) || mount_at(NULL, "/sys", NULL, REMOUNT))
		held("mount -o remount,rw /sys");
	int fd = open("/sys/kernel/mm/transparent_hugepage/enabled", O_WRONLY);
	int number = errno;
	mount_at(NULL, "/sys", NULL, REMOUNT | RDONLY);
	errno = number;
	if (fd < 0)
		held("open in /sys");
	escaped("/sys was made writable");
}

static void move_root(void)
{
	copy_namespace();
	place("/tmp/new-root");
	if (mount_at("none", "/tmp/new-root", "tmpfs", 0))
		held("mount tmpfs");
	place("/tmp/new-root/old");
	if (syscall(SYS_pivot_root, "/tmp/new-root", "/tmp/new-root/old"))
		held("pivot_root");
	/* What the jail's tree was attached to, if it still is. */
	for (int i = 0; i < 8; i++)
		if (syscall(SYS_umount2, "/old", DETACHED))
			break;
	read_canary_at(AT_FDCWD, "/old");
	read_canary_at(AT_FDCWD, "");
	escaped("pivot_root is allowed");
}

/* What lies below the jail's root in its own namespace: nothing of the node may. */
static void umount_root(void)
{
	copy_namespace();
	for (int i = 0; i < 8; i++) {
		if (syscall(SYS_umount2, "/", DETACHED))
			break;
		read_canary_at(AT_FDCWD, "");
		if (chroot("/"))
			break;
		read_canary_at(AT_FDCWD, "");
	}
	held("umount /");
}

const struct attack mount_attacks[] = {
	{ "new-proc", new_proc },
	{ "new-sysfs", new_sysfs },
	{ "new-devtmpfs", new_devtmpfs },
	{ "new-cgroup", new_cgroup },
	{ "new-tracefs", new_tracefs },
	{ "binfmt-misc", binfmt_misc },
	{ "release-agent", release_agent },
	{ "fuse", fuse },
	{ "disk-mounted", disk_mounted },
	{ "open-tree-of-init", open_tree_of_init },
	{ "bind-root-of-init", bind_init_root },
	{ "bind-over-plan", bind_over_plan },
	{ "umount-plan", umount_plan },
	{ "umount-masks", umount_masks },
	{ "remount-writable", remount_writable },
	{ "setattr-writable", setattr_writable },
	{ "conf-cache-written", conf_cache_written },
	{ "remount-sys", remount_sys },
	{ "pivot-root", move_root },
	{ "umount-root", umount_root },
	{ NULL, NULL },
};
