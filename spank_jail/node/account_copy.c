/* SPDX-License-Identifier: Apache-2.0 */
/* Writes copies of the jail's passwd, group and shadow to the node, where the NSS module libnss-extrausers reads
 * them. jail_accounts.c calls it. */
#define _GNU_SOURCE
#include "account_copy.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "native/base/scoped.h"
#include "native/base/sys.h"

/* Nothing on the way may be a link, or a mount. */
#define BENEATH (RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV)

struct texts {
	struct accounts_text of[ACCOUNTS_N_FILES];
};

static void free_texts(struct texts *texts)
{
	for (int i = 0; i < ACCOUNTS_N_FILES; i++)
		free(texts->of[i].bytes);
}
#define scoped_texts __attribute__((cleanup(free_texts))) struct texts

/* The jail's /etc, opened anew each time: it may have been replaced. */
static int open_etc(const struct accounts_request *request, struct jail_error *err)
{
	const char *start = request->jail ? request->jail : request->etc;
	scoped_fd top = open(start, O_PATH | O_DIRECTORY | O_CLOEXEC);
	struct statx ignored;

	if (top < 0) {
		jail_fail(err, "open", errno, "the jail cannot be reached; is the volume mounted?");
		return jail_error_at(err, NULL, 0, start);
	}
	int etc = request->jail ? sys_openat2(top, "etc", O_PATH | O_DIRECTORY, BENEATH) : jail_keep(&top);
	if (etc < 0)
		return jail_fail(err, "openat2", errno, "the jail's /etc must be a directory and no link; put it right");
	/* A network filesystem then forgets the names that it remembers, if the directory has changed. */
	(void)!statx(etc, "", AT_EMPTY_PATH | AT_STATX_FORCE_SYNC, STATX_MTIME | STATX_CTIME, &ignored);
	return etc;
}

void accounts_look(const struct accounts_request *request, struct accounts_state *state)
{
	struct jail_error err;
	scoped_fd etc = open_etc(request, &err);

	memset(state, 0, sizeof(*state));
	for (enum accounts_file which = 0; etc >= 0 && which < ACCOUNTS_N_FILES; which++)
		if (statx(etc, accounts_file_name(which), AT_SYMLINK_NOFOLLOW | AT_STATX_FORCE_SYNC, STATX_BASIC_STATS,
			  &state->files[which]))
			memset(&state->files[which], 0, sizeof(state->files[which]));
}

void accounts_watch(const struct accounts_request *request, struct accounts_watch *watch)
{
	struct jail_error err;
	scoped_fd etc = open_etc(request, &err);
	char path[64];

	if (etc < 0)
		return;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", etc);
	/* The same number for the same directory; one that was replaced is no longer of interest. */
	int id = inotify_add_watch(watch->fd, path, IN_ONLYDIR | IN_MOVED_TO | IN_CLOSE_WRITE);
	if (watch->id >= 0 && watch->id != id)
		inotify_rm_watch(watch->fd, watch->id);
	watch->id = id;
}

static bool same_time(const struct statx_timestamp *a, const struct statx_timestamp *b)
{
	return a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec;
}

static bool same(const struct statx *a, const struct statx *b)
{
	return a->stx_mode == b->stx_mode && a->stx_ino == b->stx_ino && a->stx_dev_major == b->stx_dev_major &&
	       a->stx_dev_minor == b->stx_dev_minor && a->stx_size == b->stx_size &&
	       same_time(&a->stx_mtime, &b->stx_mtime) && same_time(&a->stx_ctime, &b->stx_ctime);
}

bool accounts_unchanged(const struct accounts_state *a, const struct accounts_state *b)
{
	for (int i = 0; i < ACCOUNTS_N_FILES; i++)
		if (!same(&a->files[i], &b->files[i]))
			return false;
	return true;
}

/* Looks first, for opening a device or a FIFO already does something. Then the very file that was looked at is opened:
 * by its descriptor, which nobody can exchange. Not waiting: another may hold a lease on the file (fcntl(2)). */
static int open_regular(int dir, const char *name, struct statx *st, struct jail_error *err)
{
	char path[64];
	scoped_fd seen = sys_openat2(dir, name, O_PATH | O_NOFOLLOW, BENEATH);

	if (seen < 0)
		return jail_fail(err, "openat2", errno, "it must be a regular file; put it right in the jail");
	if (statx(seen, "", AT_EMPTY_PATH, STATX_BASIC_STATS, st))
		return jail_fail(err, "statx", errno, "it cannot be looked at");
	if (!S_ISREG(st->stx_mode))
		return jail_fail(err, NULL, 0, "it must be a regular file; put it right in the jail");
	if (st->stx_size > ACCOUNTS_FILE_MAX)
		return jail_fail(err, NULL, 0, "it has %llu bytes, and may have %lu",
				 (unsigned long long)st->stx_size, ACCOUNTS_FILE_MAX);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", seen);
	int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	return fd < 0 ? jail_fail(err, "open", errno, "it cannot be read; root must own it") : fd;
}

/* At most `size` bytes; returns how many there were, or -1. */
static ssize_t read_up_to(int fd, char *bytes, size_t size)
{
	size_t length = 0;
	ssize_t got;

	while (length < size && (got = read(fd, bytes + length, size - length)) != 0) {
		if (got > 0)
			length += (size_t)got;
		else if (errno != EINTR)
			return -1;
	}
	return (ssize_t)length;
}

static int read_file(int dir, const char *name, struct accounts_text *text, struct jail_error *err)
{
	struct statx before, after;
	scoped_fd fd = open_regular(dir, name, &before, err);

	if (fd < 0)
		return -1;
	size_t size = (size_t)before.stx_size;
	/* One more than there should be, to see that it grew. */
	text->bytes = malloc(size + 1);
	if (!text->bytes)
		return jail_fail(err, "malloc", ENOMEM, "not enough memory for it");
	ssize_t length = read_up_to(fd, text->bytes, size + 1);
	if (length < 0)
		return jail_fail(err, "read", errno, "it cannot be read");
	if ((size_t)length != size || statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &after) || !same(&before, &after))
		return jail_fail(err, NULL, 0, "it was written while it was read");
	text->size = size;
	return 0;
}

/* `n` of the files: the node itself may have none of shadow. */
static int read_files(int dir, int n, struct texts *texts, struct jail_error *err)
{
	for (int which = 0; which < n; which++)
		if (read_file(dir, accounts_file_name((enum accounts_file)which), &texts->of[which], err))
			return jail_error_at(err, NULL, 0, accounts_file_name((enum accounts_file)which));
	return 0;
}

static int read_own(const char *own, struct texts *texts, struct jail_error *err)
{
	scoped_fd dir = open(own, O_PATH | O_DIRECTORY | O_CLOEXEC);

	if (dir < 0)
		jail_fail(err, "open", errno, "the node's own accounts cannot be read");
	return dir < 0 || read_files(dir, ACCOUNTS_SHADOW, texts, err) ? jail_error_at(err, own, 0, NULL) : 0;
}

static bool write_all(int fd, const struct accounts_text *text)
{
	for (size_t done = 0; done < text->size;) {
		ssize_t put = write(fd, text->bytes + done, text->size - done);
		if (put < 0 && errno != EINTR)
			return false;
		done += put > 0 ? (size_t)put : 0;
	}
	return true;
}

/* shadow: root's, and for reading the group's of that name. */
static bool give_away(int fd, enum accounts_file which, long shadow_gid)
{
	if (which != ACCOUNTS_SHADOW)
		return !fchmod(fd, 0644);
	if (shadow_gid < 0)
		return !fchmod(fd, 0600);
	return !fchown(fd, (uid_t)-1, (gid_t)shadow_gid) && !fchmod(fd, 0640);
}

static void temporary_name(enum accounts_file which, char name[32])
{
	snprintf(name, 32, ".%s.new", accounts_file_name(which));
}

static int write_new(int target, enum accounts_file which, const struct accounts_text *text, long shadow_gid,
		     struct jail_error *err)
{
	char name[32];

	temporary_name(which, name);
	unlinkat(target, name, 0);
	scoped_fd fd = openat(target, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return jail_fail(err, "openat", errno, "a copy cannot be made; the directory must be root's");
	if (!write_all(fd, text) || !give_away(fd, which, shadow_gid)) {
		jail_fail(err, "write", errno, "a copy cannot be written; is there room?");
		unlinkat(target, name, 0);
		return -1;
	}
	return 0;
}

/* passwd last: a user who is seen has groups and a shadow line. */
static int write_copies(const struct accounts_request *request, const struct texts *copies, struct jail_error *err)
{
	char name[32];
	scoped_fd target = open(request->target, O_PATH | O_DIRECTORY | O_CLOEXEC);

	if (target < 0)
		return jail_fail(err, "open", errno, "the directory for copies is missing");
	for (int which = 0; which < ACCOUNTS_N_FILES; which++)
		if (write_new(target, (enum accounts_file)which, &copies->of[which], request->shadow_gid, err))
			return -1;
	for (int which = ACCOUNTS_N_FILES - 1; which >= 0; which--) {
		temporary_name((enum accounts_file)which, name);
		if (renameat(target, name, target, accounts_file_name((enum accounts_file)which)))
			return jail_fail(err, "renameat", errno, "a copy cannot take its place");
	}
	return 0;
}

int accounts_copy(const struct accounts_request *request, struct accounts_refused refused[ACCOUNTS_N_FILES],
		  struct jail_error *err)
{
	scoped_texts jail = { 0 }, own = { 0 }, copies = { 0 };

	scoped_fd etc = open_etc(request, err);
	if (etc < 0 || read_files(etc, ACCOUNTS_N_FILES, &jail, err) || read_own(request->own, &own, err) ||
	    accounts_check(jail.of, own.of, copies.of, refused, err))
		return -1;
	return write_copies(request, &copies, err) ? jail_error_at(err, NULL, 0, request->target) : 0;
}

long accounts_shadow_gid(const char *own)
{
	scoped_texts texts = { 0 };
	struct jail_error err;

	return read_own(own, &texts, &err) ? -1 : accounts_gid_of(&texts.of[ACCOUNTS_GROUP], "shadow");
}
