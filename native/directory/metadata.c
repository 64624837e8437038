/* SPDX-License-Identifier: Apache-2.0 */
/* Sets owner, mode, time and extended attributes of a file, and counts those that the file system cannot store. The
 * other files of this folder call it. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

#include "parts.h"
#include "native/layers/scoped.h"
#include "native/layers/xattrs.h"

int fail_at(const struct image_directory *directory, uint32_t node, const char *call, int number,
	    struct image_error *err)
{
	char path[IMAGE_PATH_LONGEST + 1] = "";

	image_tree_path(directory->tree, node, path, sizeof(path));
	return image_fail_call(err, path, call, number);
}

bool cannot_hold(int number)
{
	return number == EPERM || number == EOPNOTSUPP || number == ENOSYS || number == EINVAL || number == E2BIG;
}

int lose(struct image_directory *directory, enum image_loss loss, uint32_t node, int number, struct image_error *err)
{
	/* What cannot be, said so that it fits behind the file's path. */
	static const char *const what[IMAGE_N_LOSSES] = {
		[IMAGE_LOSS_OWNER] = "owner", [IMAGE_LOSS_MODE] = "mode", [IMAGE_LOSS_TIME] = "time",
		[IMAGE_LOSS_CAPABILITY] = "file capabilities", [IMAGE_LOSS_ACL] = "ACL",
		[IMAGE_LOSS_ATTRIBUTE] = "extended attributes", [IMAGE_LOSS_DEVICE] = "device node",
		[IMAGE_LOSS_FIFO] = "fifo", [IMAGE_LOSS_SYMLINK] = "symbolic link", [IMAGE_LOSS_HARDLINK] = "hard link",
	};
	char path[IMAGE_PATH_LONGEST + 1] = "";
	const char *why = number ? strerrordesc_np(number) : "it is not there afterwards";

	image_tree_path(directory->tree, node, path, sizeof(path));
	if (!directory->request.lossy) {
		image_fail(err, IMAGE_FAULT_LOSSY, path, "its %s: %s", what[loss], why ? why : "unknown error");
		err->number = number;
		return -1;
	}
	if (atomic_fetch_add(&directory->losses[loss].count, 1) == 0)
		snprintf(directory->losses[loss].first, sizeof(directory->losses[loss].first), "%.255s", path);
	return 0;
}

/* After a call that failed. */
static int failed(struct image_directory *directory, enum image_loss loss, uint32_t node, const char *call,
		  struct image_error *err)
{
	return cannot_hold(errno) ? lose(directory, loss, node, errno, err) : fail_at(directory, node, call, errno, err);
}

static enum image_loss loss_of(const char *name)
{
	if (!strcmp(name, "security.capability"))
		return IMAGE_LOSS_CAPABILITY;
	return strncmp(name, "system.posix_acl_", strlen("system.posix_acl_")) ? IMAGE_LOSS_ATTRIBUTE : IMAGE_LOSS_ACL;
}

/* By descriptor where there is one; else below /proc, for which setxattr has no other way before Linux 6.13. */
static int set_xattr(int folder, const char *name, int fd, const char *key, const struct image_xattr *xattr)
{
	char path[sizeof("/proc/self/fd//") + 3 * sizeof(int) + IMAGE_NAME_LONGEST];

	if (fd >= 0)
		return fsetxattr(fd, key, xattr->value, xattr->value_length, 0);
	snprintf(path, sizeof(path), "/proc/self/fd/%d/%s", folder, name);
	return lsetxattr(path, key, xattr->value, xattr->value_length, 0);
}

static bool has_room(int fd)
{
	struct statvfs status;

	return !fstatvfs(fd, &status) && status.f_bfree > 64;
}

static int set_xattrs(struct image_directory *directory, uint32_t node, int folder, const char *name, int fd,
		      const unsigned char *xattrs, size_t length, struct image_error *err)
{
	struct image_xattr xattr;
	char key[256];

	for (size_t offset = 0; image_xattrs_next(xattrs, length, &offset, &xattr);) {
		memcpy(key, xattr.name, xattr.name_length);
		key[xattr.name_length] = 0;
		if (!set_xattr(folder, name, fd, key, &xattr))
			continue;
		/* ext4 says ENOSPC also when an attribute is larger than its one block. */
		if (!cannot_hold(errno) && !(errno == ENOSPC && has_room(fd >= 0 ? fd : folder)))
			return fail_at(directory, node, "setxattr", errno, err);
		if (lose(directory, loss_of(key), node, errno, err))
			return -1;
	}
	return 0;
}

/* Some file systems take a change and do nothing (NFS with squashed root, FAT, many of FUSE). */
static int check(struct image_directory *directory, uint32_t node, const struct stat *status, char kind,
		 const struct image_record *record, struct image_error *err)
{
	struct timespec time = status->st_mtim;

	if ((status->st_uid != record->uid || status->st_gid != record->gid) &&
	    lose(directory, IMAGE_LOSS_OWNER, node, 0, err))
		return -1;
	if (kind != 'l' && (status->st_mode & 07777) != record->mode && lose(directory, IMAGE_LOSS_MODE, node, 0, err))
		return -1;
	if (time.tv_sec * 1000000000 + time.tv_nsec != record->mtime_ns &&
	    lose(directory, IMAGE_LOSS_TIME, node, 0, err))
		return -1;
	if (kind == 'f' && (uint64_t)status->st_size != record->size)
		return fail_at(directory, node, "fstat", EIO, err);
	return 0;
}

/* In this order: chown drops setuid and capabilities, chmod edits an ACL's mask, and the time comes last. */
int set_metadata(struct image_directory *directory, uint32_t node, int folder, const char *name, int fd, char kind,
		 const struct image_record *record, const unsigned char *xattrs, struct image_error *err)
{
	bool owned = record->uid == directory->uid && record->gid == directory->gid;
	int64_t seconds = record->mtime_ns / 1000000000, ns = record->mtime_ns % 1000000000;
	struct timespec times[2];
	struct stat status;

	if (ns < 0) {
		ns += 1000000000;
		seconds--;
	}
	times[0] = times[1] = (struct timespec){ .tv_sec = seconds, .tv_nsec = ns };
	if ((!owned || kind == 'd') &&
	    (fd >= 0 ? fchown(fd, record->uid, record->gid)
		     : fchownat(folder, name, record->uid, record->gid, AT_SYMLINK_NOFOLLOW)) &&
	    failed(directory, IMAGE_LOSS_OWNER, node, "fchown", err))
		return -1;
	/* A new file has its mode but for these bits, which a write or chown would have taken away. */
	if (kind == 'd' || (kind != 'l' && ((record->mode & 07000) || fd < 0 || atomic_load(&directory->masked))))
		if ((fd >= 0 ? fchmod(fd, record->mode) : fchmodat(folder, name, record->mode, 0)) &&
		    failed(directory, IMAGE_LOSS_MODE, node, "fchmod", err))
			return -1;
	if (set_xattrs(directory, node, folder, name, fd, xattrs, record->xattrs_length, err))
		return -1;
	if ((fd >= 0 ? futimens(fd, times) : utimensat(folder, name, times, AT_SYMLINK_NOFOLLOW)) &&
	    failed(directory, IMAGE_LOSS_TIME, node, "futimens", err))
		return -1;
	if (fd >= 0 ? fstat(fd, &status) : fstatat(folder, name, &status, AT_SYMLINK_NOFOLLOW))
		return fail_at(directory, node, "fstat", errno, err);
	return check(directory, node, &status, kind, record, err);
}

bool is_whole(int folder, const char *name, const struct item *item)
{
	const struct image_record *record = &item->record;
	struct stat status;
	char kind;

	/* Whether it has its attributes, or the target holds none, shows when they are set: few files have any. */
	if (record->xattrs_length || fstatat(folder, name, &status, AT_SYMLINK_NOFOLLOW))
		return false;
	kind = S_ISREG(status.st_mode) ? 'f' : S_ISLNK(status.st_mode) ? 'l' : S_ISFIFO(status.st_mode) ? 'p' :
	       S_ISCHR(status.st_mode) ? 'c' : S_ISBLK(status.st_mode) ? 'b' : 0;
	return kind == item->kind && status.st_uid == record->uid && status.st_gid == record->gid &&
	       (kind == 'l' || (status.st_mode & 07777) == record->mode) &&
	       (kind != 'f' || (uint64_t)status.st_size == record->size) &&
	       ((kind != 'c' && kind != 'b') || status.st_rdev == makedev(record->major, record->minor)) &&
	       status.st_mtim.tv_sec * 1000000000 + status.st_mtim.tv_nsec == record->mtime_ns;
}
