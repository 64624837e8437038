/* SPDX-License-Identifier: Apache-2.0 */
/* A file system that shows a directory and takes its time: SLOW_FS_US microseconds for each call, as a server
 * over a network does, for any number of calls at once. With SLOW_FS_LOSSY it holds no attributes, links, devices
 * or owners. The file SLOW_FS_COUNT, if it is named, holds the number of calls up to now, of 64 bits. For measurements
 * and tests.
 *
 *   SLOW_FS_US=1000 slow_fs DIRECTORY MOUNTPOINT -o max_threads=128
 */
#define _GNU_SOURCE
#define FUSE_USE_VERSION 35
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fuse.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

static char below[4096];
static struct timespec latency;
static bool lossy;
static _Atomic uint64_t own_count, *count = &own_count;

struct place {
	char path[8192];
};

/* The path below the directory, after the wait. */
static const char *at(struct place *place, const char *path)
{
	clock_nanosleep(CLOCK_MONOTONIC, 0, &latency, NULL);
	atomic_fetch_add(count, 1);
	snprintf(place->path, sizeof(place->path), "%s%s", below, path);
	return place->path;
}

#define AT(path) at(&(struct place){ "" }, path)
#define ANSWER(call) ((call) < 0 ? -errno : 0)

static int on_getattr(const char *path, struct stat *status, struct fuse_file_info *info)
{
	(void)info;
	return ANSWER(lstat(AT(path), status));
}

static int on_readlink(const char *path, char *text, size_t size)
{
	ssize_t length = readlink(AT(path), text, size - 1);

	if (length < 0)
		return -errno;
	text[length] = 0;
	return 0;
}

static int on_mknod(const char *path, mode_t mode, dev_t device)
{
	if (lossy && !S_ISREG(mode))
		return -EPERM;
	return ANSWER(mknod(AT(path), mode, device));
}

static int on_mkdir(const char *path, mode_t mode) { return ANSWER(mkdir(AT(path), mode)); }
static int on_unlink(const char *path) { return ANSWER(unlink(AT(path))); }
static int on_rmdir(const char *path) { return ANSWER(rmdir(AT(path))); }

static int on_symlink(const char *text, const char *path)
{
	return ANSWER(symlink(text, AT(path)));
}

static int on_rename(const char *from, const char *to, unsigned flags)
{
	struct place place;

	snprintf(place.path, sizeof(place.path), "%s%s", below, from);
	return ANSWER(renameat2(AT_FDCWD, place.path, AT_FDCWD, AT(to), flags));
}

static int on_link(const char *from, const char *to)
{
	struct place place;

	if (lossy)
		return -EPERM;
	snprintf(place.path, sizeof(place.path), "%s%s", below, from);
	return ANSWER(link(place.path, AT(to)));
}

static int on_chmod(const char *path, mode_t mode, struct fuse_file_info *info)
{
	(void)info;
	return ANSWER(chmod(AT(path), mode));
}

static int on_chown(const char *path, uid_t uid, gid_t gid, struct fuse_file_info *info)
{
	(void)info;
	/* As squashed root does: said to be done. */
	return lossy ? 0 : ANSWER(lchown(AT(path), uid, gid));
}

static int on_truncate(const char *path, off_t size, struct fuse_file_info *info)
{
	(void)info;
	return ANSWER(truncate(AT(path), size));
}

static int on_utimens(const char *path, const struct timespec times[2], struct fuse_file_info *info)
{
	(void)info;
	return ANSWER(utimensat(AT_FDCWD, AT(path), times, AT_SYMLINK_NOFOLLOW));
}

static int opened(int fd, struct fuse_file_info *info)
{
	if (fd < 0)
		return -errno;
	info->fh = (uint64_t)fd;
	return 0;
}

static int on_open(const char *path, struct fuse_file_info *info)
{
	return opened(open(AT(path), info->flags & ~O_CREAT), info);
}

static int on_create(const char *path, mode_t mode, struct fuse_file_info *info)
{
	return opened(open(AT(path), info->flags | O_CREAT, mode), info);
}

static int on_read(const char *path, char *data, size_t size, off_t offset, struct fuse_file_info *info)
{
	ssize_t done;

	(void)AT(path);
	done = pread((int)info->fh, data, size, offset);
	return done < 0 ? -errno : (int)done;
}

static int on_write(const char *path, const char *data, size_t size, off_t offset, struct fuse_file_info *info)
{
	ssize_t done;

	(void)AT(path);
	done = pwrite((int)info->fh, data, size, offset);
	return done < 0 ? -errno : (int)done;
}

/* Nobody waits for it. */
static int on_release(const char *path, struct fuse_file_info *info)
{
	(void)path;
	return close((int)info->fh), 0;
}

static int on_statfs(const char *path, struct statvfs *status) { return ANSWER(statvfs(AT(path), status)); }

static int on_readdir(const char *path, void *buffer, fuse_fill_dir_t fill, off_t offset,
		      struct fuse_file_info *info, enum fuse_readdir_flags flags)
{
	DIR *stream = opendir(AT(path));

	(void)offset;
	(void)info;
	(void)flags;
	if (!stream)
		return -errno;
	for (struct dirent *one; (one = readdir(stream));)
		fill(buffer, one->d_name, NULL, 0, 0);
	closedir(stream);
	return 0;
}

static int on_setxattr(const char *path, const char *name, const char *value, size_t size, int flags)
{
	return lossy ? -ENOTSUP : ANSWER(lsetxattr(AT(path), name, value, size, flags));
}

static int on_getxattr(const char *path, const char *name, char *value, size_t size)
{
	ssize_t length = lossy ? (errno = ENOTSUP, -1) : lgetxattr(AT(path), name, value, size);

	return length < 0 ? -errno : (int)length;
}

static int on_listxattr(const char *path, char *names, size_t size)
{
	ssize_t length = lossy ? 0 : llistxattr(AT(path), names, size);

	return length < 0 ? -errno : (int)length;
}

/* The kernel remembers a link as it does a file, like an NFS client. */
static void *on_init(struct fuse_conn_info *connection, struct fuse_config *config)
{
	(void)config;
	connection->want |= connection->capable & FUSE_CAP_CACHE_SYMLINKS;
	return NULL;
}

static const struct fuse_operations operations = {
	.init = on_init,
	.getattr = on_getattr, .readlink = on_readlink, .mknod = on_mknod, .mkdir = on_mkdir, .unlink = on_unlink,
	.rmdir = on_rmdir, .symlink = on_symlink, .rename = on_rename, .link = on_link, .chmod = on_chmod,
	.chown = on_chown, .truncate = on_truncate, .utimens = on_utimens, .open = on_open, .create = on_create,
	.read = on_read, .write = on_write, .release = on_release, .statfs = on_statfs, .readdir = on_readdir,
	.setxattr = on_setxattr, .getxattr = on_getxattr, .listxattr = on_listxattr,
};

int main(int argc, char **argv)
{
	const char *us = getenv("SLOW_FS_US");
	long wait = us ? strtol(us, NULL, 10) : 1000;

	if (argc < 3 || !realpath(argv[1], below)) {
		fprintf(stderr, "usage: SLOW_FS_US=N %s DIRECTORY MOUNTPOINT [-o OPTIONS]\n", argv[0]);
		return 2;
	}
	latency = (struct timespec){ .tv_sec = wait / 1000000, .tv_nsec = wait % 1000000 * 1000 };
	lossy = getenv("SLOW_FS_LOSSY") != NULL;
	const char *file = getenv("SLOW_FS_COUNT");
	if (file) {
		int fd = open(file, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
		if (fd < 0 || ftruncate(fd, sizeof(*count)) ||
		    (count = mmap(NULL, sizeof(*count), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)) == MAP_FAILED) {
			perror(file);
			return 1;
		}
	}
	umask(0);
	argv[1] = argv[0];
	return fuse_main(argc - 1, argv + 1, &operations, NULL);
}
