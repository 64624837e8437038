/* SPDX-License-Identifier: Apache-2.0 */
/* Covers the parts of /proc and /sys through which root in the jail could see or change the
 * node. native/jail calls it. */
#define _GNU_SOURCE
#include "mask.h"

#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include "filesystem.h"
#include "native/base/scoped.h"
#include "native/base/sys.h"

enum how {
	READ_ONLY, /* itself, laid over itself */
	COVERED,   /* by the empty directory or file */
};

/* Each costs every step about 3 us, so only what uid 0 could use without a capability is here. Left out,
 * because the kernel asks for a capability that root inside lacks: kcore (SYS_RAWIO), kmsg (SYSLOG), mtrr
 * (SYS_ADMIN); addresses in kallsyms, iomem, ioports, modules, vmallocinfo read as zero (SYSLOG, SYS_ADMIN).
 * Left out because everybody may read it on the node, too: interrupts, softirqs. Left out because a jail
 * never has it: what is below /sys/kernel/debug, tracing, security, /sys/fs/bpf are mounts of their own.
 * Files of a process (/proc/PID) are guarded by ptrace's rules, and by hidepid=ptraceable in the plan. */
static const struct {
	enum jail_type type;
	enum how how;
	const char *path;
} masks_of[] = {
	{ JAIL_PROC, READ_ONLY, "sys" },             /* core_pattern, modprobe: programs that the kernel runs */
	{ JAIL_PROC, READ_ONLY, "sysrq-trigger" },   /* reboots the node */
	{ JAIL_PROC, READ_ONLY, "irq" },             /* which processor serves which device */
	{ JAIL_PROC, READ_ONLY, "bus" },             /* registers of PCI devices */
	{ JAIL_PROC, READ_ONLY, "fs" },              /* settings of file systems: Lustre, CIFS */
	{ JAIL_PROC, READ_ONLY, "driver" },          /* suspends GPUs */
	{ JAIL_PROC, READ_ONLY, "dynamic_debug" },   /* floods the kernel's log */
	{ JAIL_PROC, READ_ONLY, "acpi/wakeup" },     /* what wakes the node */
	{ JAIL_PROC, READ_ONLY, "latency_stats" },   /* written to reset it; and as the next three */
	{ JAIL_PROC, COVERED, "timer_list" },        /* names and numbers of all processes, in spite of hidepid */
	{ JAIL_PROC, COVERED, "sched_debug" },       /* the same (before Linux 5.13) */
	{ JAIL_PROC, COVERED, "keys" },              /* descriptions of the node's root's keys */
	{ JAIL_PROC, COVERED, "scsi" },              /* adds and removes disks */
	{ JAIL_PROC, COVERED, "asound" },            /* microphones */
	/* sysfs is read-only as a whole. */
	{ JAIL_SYSFS, COVERED, "firmware" },                 /* ACPI tables, memory map, DMI: serial numbers, keys */
	{ JAIL_SYSFS, COVERED, "devices/virtual/powercap" }, /* energy counters tell what other jobs compute */
};

bool jail_mask_applies(enum jail_type type)
{
	return type == JAIL_PROC || type == JAIL_SYSFS;
}

static int attach(int mount, int target, struct jail_error *err)
{
	if (sys_move_mount(mount, "", target, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH))
		return jail_fail(err, "move_mount", errno, "cannot mount here; is the target a directory?");
	return 0;
}

static int read_only(int mount, struct jail_error *err)
{
	if (sys_mount_setattr(mount, "", AT_EMPTY_PATH, MOUNT_ATTR_RDONLY, 0))
		return jail_fail(err, "mount_setattr", errno, "cannot make it read-only");
	return 0;
}

/* The tmpfs, attached at `target`. The mount that is to be seen there will cover it. */
static int make_base(struct jail_masks *masks, int target, struct jail_error *err)
{
	/* One page would do; so few inodes that nobody finds room, should it ever become writable. */
	static const struct jail_parameter parameters[] = { { "size", "4k" }, { "nr_inodes", "3" }, { "mode", "0555" } };
	const uint64_t attributes = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC;

	masks->base = jail_filesystem_new("tmpfs", parameters, 3, attributes, err);
	if (masks->base < 0)
		return -1;
	if (sys_mkdirat(masks->base, "directory", 0555))
		return jail_fail(err, "mkdirat", errno, "cannot make what covers folders of /proc and /sys");
	if (sys_mknodat(masks->base, "file", S_IFREG | 0444, 0))
		return jail_fail(err, "mknodat", errno, "cannot make what covers files of /proc and /sys");
	if (read_only(masks->base, err) || attach(masks->base, target, err))
		return -1;
	masks->directory = sys_openat2(masks->base, "directory", O_PATH | O_DIRECTORY, RESOLVE_NO_SYMLINKS);
	masks->file = sys_openat2(masks->base, "file", O_PATH, RESOLVE_NO_SYMLINKS);
	if (masks->directory < 0 || masks->file < 0)
		return jail_fail(err, "openat2", errno, "cannot open what covers parts of /proc and /sys");
	return 0;
}

/* In the base's directory, where nothing leads once the base is covered; clones of that directory, which
 * cover others, do not take it along. */
static int hide_proc(struct jail_masks *masks, struct jail_error *err)
{
	const uint64_t attributes = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC;
	scoped_fd proc = jail_filesystem_new("proc", NULL, 0, attributes, err);

	return proc < 0 || attach(proc, masks->directory, err) ? -1 : 0;
}

static int lay_over(const struct jail_masks *masks, enum how how, int place, struct jail_error *err)
{
	struct stat st;
	int from = place;

	if (how == COVERED) {
		if (sys_fstat(place, &st))
			return jail_fail(err, "fstat", errno, "cannot look at it");
		from = S_ISDIR(st.st_mode) ? masks->directory : masks->file;
	}
	scoped_fd clone = sys_open_tree(from, "", OPEN_TREE_CLONE | AT_EMPTY_PATH);
	if (clone < 0)
		return jail_fail(err, "open_tree", errno, "cannot clone what is to lie over it");
	/* Clones of the base are read-only as it is. */
	if (how == READ_ONLY && read_only(clone, err))
		return -1;
	return attach(clone, place, err);
}

static int mask(const struct jail_masks *masks, int mount, enum jail_type type, struct jail_error *err)
{
	for (size_t i = 0; i < sizeof(masks_of) / sizeof(masks_of[0]); i++) {
		if (masks_of[i].type != type)
			continue;
		scoped_fd place = sys_openat2(mount, masks_of[i].path, O_PATH, RESOLVE_IN_ROOT | RESOLVE_NO_SYMLINKS);
		if (place < 0 && errno == ENOENT)
			continue; /* this kernel does not have it */
		if (place < 0)
			jail_fail(err, "openat2", errno, "cannot open it to mask it");
		else if (!lay_over(masks, masks_of[i].how, place, err))
			continue;
		return jail_error_at(err, NULL, 0, masks_of[i].path);
	}
	return 0;
}

/* One that came with the volume's own mounts stays unmasked below ours, which is as good as no mask. */
static int refuse_unmasked(int target, struct jail_error *err)
{
	struct statfs fs;

	if (sys_fstatfs(target, &fs))
		return jail_fail(err, "fstatfs", errno, "cannot look at the target");
	if (fs.f_type == PROC_SUPER_MAGIC || fs.f_type == SYSFS_MAGIC)
		return jail_fail(err, NULL, 0, "a proc or sysfs is mounted here already, without masks; unmount it in the "
				 "volume, or remove the second line from the plan");
	return 0;
}

int jail_mask_attach(struct jail_masks *masks, int mount, int target, const struct jail_entry *entry,
		     struct jail_error *err)
{
	bool first = masks->base < 0;

	if (refuse_unmasked(target, err) || (first && make_base(masks, target, err)))
		return -1;
	if (entry->type == JAIL_PROC && !masks->proc_hidden) {
		if (hide_proc(masks, err))
			return -1;
		masks->proc_hidden = true;
	}
	if (entry->type == JAIL_SYSFS && read_only(mount, err))
		return -1;
	return attach(mount, first ? masks->base : target, err) || mask(masks, mount, entry->type, err) ? -1 : 0;
}

void jail_masks_close(struct jail_masks *masks)
{
	jail_close(&masks->base);
	jail_close(&masks->directory);
	jail_close(&masks->file);
}
