/* SPDX-License-Identifier: Apache-2.0 */
/* Locks an image or layer of the cache while a process makes it, so that others wait and do not make it again. Files
 * of this folder call it. */
#define _GNU_SOURCE
#include "lock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "native/base/scoped.h"
#include "native/base/report.h"

#define MOMENTS 20 /* of 2 ms */
#define TELL_EVERY 10.0 /* seconds between lines to the user */

int lock_take(int fd, enum lock_kind kind)
{
	struct flock lock = { .l_type = kind == LOCK_SHARED ? F_RDLCK : F_WRLCK, .l_whence = SEEK_SET };

	if (!fcntl(fd, F_OFD_SETLK, &lock))
		return 0;
	if (errno == EACCES)
		errno = EAGAIN;
	return -1;
}

bool lock_is_held(int fd)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };

	return !fcntl(fd, F_OFD_GETLK, &lock) && lock.l_type != F_UNLCK;
}

/* Opens the file, or makes it: `made` says which. In a sticky directory O_CREAT refuses files of others
 * (fs.protected_regular), so it is opened first. */
static int open_lock(int folder, const char *name, bool for_all, bool *made)
{
	const int flags = O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
	struct stat st;

	for (int i = 0; i < 3; i++) {
		scoped_fd fd = openat(folder, name, flags);
		*made = false;
		if (fd >= 0) {
			if (!fstat(fd, &st) && S_ISREG(st.st_mode))
				return jail_keep(&fd);
			errno = EPERM;
			return -1;
		}
		if (errno != ENOENT)
			return -1;
		*made = true;
		fd = openat(folder, name, flags | O_CREAT | O_EXCL, 0600);
		if (fd >= 0) {
			if (for_all && fchmod(fd, 0666))
				return -1;
			return jail_keep(&fd);
		}
		if (errno != EEXIST)
			return -1;
	}
	errno = EPERM;
	return -1;
}

static bool is_named(int folder, const char *name, int fd)
{
	struct stat held, named;

	return !fstat(fd, &held) && !fstatat(folder, name, &named, AT_SYMLINK_NOFOLLOW) && held.st_ino == named.st_ino &&
	       held.st_dev == named.st_dev;
}

int lock_file(int folder, const char *name, bool for_all)
{
	const struct timespec moment = { .tv_nsec = 2000000 };
	bool made;

	if (folder < 0) {
		errno = ENOLCK;
		return -1;
	}
	for (int i = 0; i < 100; i++) {
		scoped_fd fd = open_lock(folder, name, for_all, &made);
		/* Between its creation and its mode for all, other users are refused. */
		if (fd < 0 && errno == EACCES && for_all && i < MOMENTS) {
			nanosleep(&moment, NULL);
			continue;
		}
		if (fd < 0 || lock_take(fd, LOCK_EXCLUSIVE))
			return -1;
		/* Did the one before remove it meanwhile? */
		if (!is_named(folder, name, fd))
			continue;
		/* A file that was there already may be any file of ours: another user can link or move it into a directory of
		 * everybody's. Its name goes, its content stays. Of somebody else's, which only its owner may remove from there, the
		 * lock counts; lock_tell writes nothing to it. */
		if (!made && !unlinkat(folder, name, 0))
			continue;
		return jail_keep(&fd);
	}
	errno = EAGAIN;
	return -1;
}

void lock_file_done(int folder, const char *name, int *fd)
{
	if (*fd >= 0)
		unlinkat(folder, name, 0);
	jail_close(fd);
}

void lock_tell(int fd, unsigned long long done, unsigned long long total)
{
	char text[128], host[65] = "";
	struct stat st;

	/* A file of somebody else's was not made here, and need not be a lock at all: lock_file. */
	if (fd < 0 || fstat(fd, &st) || st.st_uid != geteuid())
		return;
	gethostname(host, sizeof(host) - 1);
	/* Of one length always: what is read is never half of an old one. */
	snprintf(text, sizeof(text), "%20llu %20llu %10ld %-64.64s", done, total, (long)getpid(), host);
	if (pwrite(fd, text, strlen(text), 0) < 0)
		return; /* the others see less */
}

static bool read_progress(int folder, const char *name, char text[128])
{
	scoped_fd fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	struct stat st;
	ssize_t got = fd < 0 || fstat(fd, &st) || !S_ISREG(st.st_mode) ? -1 : pread(fd, text, 127, 0);

	text[got > 0 ? got : 0] = '\0';
	return got > 0;
}

bool lock_ask(int folder, const char *name, struct lock_progress *progress)
{
	char text[128];

	*progress = (struct lock_progress){ 0 };
	if (!read_progress(folder, name, text) ||
	    sscanf(text, "%20llu %20llu %10ld %64s", &progress->done, &progress->total, &progress->pid, progress->host) < 3)
		return false;
	/* Others may write this file: nothing of it goes to a terminal as it is. */
	for (char *c = progress->host; *c; c++)
		if ((*c < 'a' || *c > 'z') && (*c < 'A' || *c > 'Z') && (*c < '0' || *c > '9') && *c != '.' && *c != '-')
			*c = '?';
	return true;
}

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_BOOTTIME, &time);
	return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

#define MIB(bytes) ((double)(bytes) / (1 << 20))

/* What an import tells of itself, for another's: how much of how much, how fast, how long yet, and whose it is. */
static void tell_user(const struct lock_wait *wait, int folder, const char *name)
{
	struct lock_progress progress;
	char left[64] = "";

	if (!lock_ask(folder, name, &progress)) {
		report_info("waiting for another process, which imports %s", wait->what);
		return;
	}
	double seconds = now() - wait->began;
	double rate = progress.done > wait->at_first && seconds > 1 ? (double)(progress.done - wait->at_first) / seconds : 0;
	if (rate > 0 && progress.total > progress.done)
		snprintf(left, sizeof(left), ", %.1f MiB/s, %.0f s left", MIB(rate), (double)(progress.total - progress.done) / rate);
	if (progress.total)
		report_info("%.1f MiB of %.1f MiB (%.0f%%)%s; process %ld on %s imports it", MIB(progress.done), MIB(progress.total),
			    100.0 * (double)progress.done / (double)progress.total, left, progress.pid, progress.host);
	else
		report_info("%.1f MiB so far; process %ld on %s imports it", MIB(progress.done), progress.pid, progress.host);
}

bool lock_wait(struct lock_wait *wait, int folder, const char *name)
{
	double time = now();
	char text[128];

	if (wait->began == 0) {
		struct lock_progress progress;
		wait->began = wait->changed = time;
		wait->at_first = lock_ask(folder, name, &progress) ? progress.done : 0;
		/* Most waits are over before anybody could read about them. */
		wait->reported = time + 0.5 - TELL_EVERY;
	}
	read_progress(folder, name, text);
	if (strcmp(text, wait->seen)) {
		memcpy(wait->seen, text, sizeof(wait->seen));
		wait->changed = time;
	}
	if (time - wait->changed > (double)wait->patience || time - wait->began > (double)wait->most) {
		report_warning("%s: whoever imports it has held its lock for %.0f s and %s; going on alone", wait->what,
			       time - wait->began, time - wait->changed > (double)wait->patience
			       ? "does not advance" : "is not done (ENROOT_CACHE_WAIT)");
		return false;
	}
	if (time - wait->reported >= TELL_EVERY) {
		wait->reported = time;
		tell_user(wait, folder, name);
	}
	/* 10 ms at first, 100 ms in the end, not all at once. */
	wait->turns++;
	unsigned milliseconds = wait->turns < 20 ? 10 : 100;
	struct timespec pause = { .tv_nsec = (long)(milliseconds * 1000000U) + (random() % 5) * 1000000L };
	nanosleep(&pause, NULL);
	return true;
}
