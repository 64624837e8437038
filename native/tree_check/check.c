/* SPDX-License-Identifier: Apache-2.0 */
/* Compares files of a volume with lines of its manifest, in threads: metadata, and content where asked. Python calls
 * it, by native/cffi. */
#define _GNU_SOURCE
#include "check.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "digest.h"
#include "line.h"

enum { BATCH = 32, MAX_THREADS = 256, NAMES_SIZE = 64 * 1024, MAGIC_SIZE = 32 };

/* What the threads share. Lines are handed out in batches, so that one with large files holds up nobody. */
struct work {
	struct volume_check *check;
	const size_t *starts; /* of lines; one more than there are lines */
	size_t n_lines;
	atomic_size_t next;
	atomic_size_t n_findings;
	atomic_uint_fast64_t bytes;
	atomic_bool failed;
	pthread_mutex_t lock;
	struct volume_error *err;
};

struct worker {
	struct work *work;
	struct volume_digest *digest; /* NULL unless content is read */
	struct volume_line line;
	char folder[PATH_MAX]; /* the last parent, kept open: lines of one directory mostly follow each other */
	int folder_fd;
	bool has_folder;
	char names[NAMES_SIZE];
};

static void close_folder(struct worker *worker)
{
	if (worker->has_folder && worker->folder_fd >= 0)
		close(worker->folder_fd);
	worker->has_folder = false;
}

/* The parent of `path` as a descriptor that stays the worker's, and its last name. -1 with errno. */
static int parent(struct worker *worker, const char *path, const char **name)
{
	const char *slash = strrchr(path, '/');
	size_t length = slash ? (size_t)(slash - path) : 0;
	struct open_how how = {
		.flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
	};

	*name = slash ? slash + 1 : *path ? path : ".";
	if (!slash)
		return worker->work->check->root;
	if (worker->has_folder && strncmp(worker->folder, path, length) == 0 && worker->folder[length] == '\0')
		return worker->folder_fd;
	close_folder(worker);
	memcpy(worker->folder, path, length);
	worker->folder[length] = '\0';
	worker->folder_fd =
		(int)syscall(SYS_openat2, worker->work->check->root, worker->folder, &how, sizeof how);
	if (worker->folder_fd < 0)
		return -1;
	worker->has_folder = true;
	return worker->folder_fd;
}

static char kind_of(mode_t mode)
{
	switch (mode & S_IFMT) {
	case S_IFDIR:
		return 'd';
	case S_IFREG:
		return 'f';
	case S_IFLNK:
		return 'l';
	case S_IFIFO:
		return 'p';
	case S_IFCHR:
		return 'c';
	case S_IFBLK:
		return 'b';
	default:
		return 's';
	}
}

/* Attributes of the machine that a tree lies on; the same as in cellblock/jail/tree/entry.py. */
static bool of_the_machine(const char *name)
{
	static const char *const starts[] = { "trusted.overlay.", "security.selinux", "security.ima",
					      "security.evm",	  "system.nfs4_acl",  "system.nfs4_dacl",
					      "system.nfs4_sacl", "trusted.SGI_ACL_" };

	for (size_t i = 0; i < sizeof starts / sizeof *starts; i++)
		if (strncmp(name, starts[i], strlen(starts[i])) == 0)
			return true;
	return false;
}

/* A path that is the file itself that `fd` (O_PATH) was opened for, whatever has its name by now. */
static void magic_path(int fd, char path[MAGIC_SIZE])
{
	snprintf(path, MAGIC_SIZE, "/proc/self/fd/%d", fd);
}

/* Whether there is an attribute to look at, in the line or on the file. */
static bool has_attributes(struct worker *worker, int file)
{
	char path[MAGIC_SIZE];
	ssize_t size;

	if (worker->line.has_attributes)
		return true;
	magic_path(file, path);
	size = listxattr(path, worker->names, sizeof worker->names);
	if (size < 0)
		return errno == ERANGE || errno == E2BIG;
	for (ssize_t i = 0; i < size; i += (ssize_t)strlen(worker->names + i) + 1)
		if (!of_the_machine(worker->names + i))
			return true;
	return false;
}

static unsigned compare_target(struct worker *worker, int file)
{
	char target[PATH_MAX];
	ssize_t length = readlinkat(file, "", target, sizeof target);

	if (length < 0 || (size_t)length != strlen(worker->line.target) ||
	    memcmp(target, worker->line.target, (size_t)length) != 0)
		return VOLUME_TARGET;
	return 0;
}

static unsigned compare_device(const struct volume_line *line, const struct stat *status)
{
	char expected[32];
	int length = snprintf(expected, sizeof expected, "%u:%u", major(status->st_rdev), minor(status->st_rdev));

	return (size_t)length == line->content_length && memcmp(expected, line->content, (size_t)length) == 0 ?
		       0 :
		       VOLUME_DEVICE;
}

/* Of a regular file, looked at as `file`: a device that has its name by now is not opened. O_NONBLOCK: users may
 * hold a lease on it. */
static unsigned compare_content(struct worker *worker, int file, int *number)
{
	int flags = O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
	char path[MAGIC_SIZE], hex[65];
	uint64_t bytes = 0;
	int fd;

	magic_path(file, path);
	fd = open(path, flags | O_NOATIME);
	if (fd < 0 && errno == EPERM)
		fd = open(path, flags);
	if (fd < 0) {
		*number = errno;
		return VOLUME_UNREADABLE;
	}
	*number = volume_digest_file(worker->digest, fd, worker->line.size, hex, &bytes);
	close(fd);
	atomic_fetch_add(&worker->work->bytes, bytes);
	if (*number == EFBIG) { /* users write to it, and may never end */
		*number = 0;
		return VOLUME_CONTENT | VOLUME_SIZE;
	}
	if (*number != 0)
		return VOLUME_UNREADABLE;
	return worker->line.content_length == 64 && memcmp(hex, worker->line.content, 64) == 0 ? 0 :
											      VOLUME_CONTENT;
}

/* A hard link: is it still another name of the same file? Its owner and so on are that file's. */
static unsigned compare_link(struct worker *worker, const struct stat *status)
{
	struct stat other;
	const char *name;
	int folder = parent(worker, worker->line.target, &name);

	if (folder < 0 || fstatat(folder, name, &other, AT_SYMLINK_NOFOLLOW) < 0)
		return VOLUME_LINK;
	return other.st_ino == status->st_ino && other.st_dev == status->st_dev ? 0 : VOLUME_LINK;
}

static unsigned compare_file(struct worker *worker, int file, const struct stat *status, int *number)
{
	const struct volume_line *line = &worker->line;
	char kind = kind_of(status->st_mode);
	unsigned bits = 0;

	if (line->kind != 'h' && kind != line->kind)
		return VOLUME_KIND;
	if ((status->st_mode & 07777) != line->mode && kind != 'l')
		bits |= VOLUME_MODE;
	if (status->st_uid != line->uid || status->st_gid != line->gid)
		bits |= VOLUME_OWNER;
	if (kind != 'd') {
		int64_t time = (int64_t)status->st_mtim.tv_sec * 1000000000 + status->st_mtim.tv_nsec;

		if (time != line->time)
			bits |= VOLUME_TIME;
	}
	if (kind == 'f' && (uint64_t)status->st_size != line->size)
		bits |= VOLUME_SIZE;
	if (line->kind == 'l')
		bits |= compare_target(worker, file);
	if (line->kind == 'c' || line->kind == 'b')
		bits |= compare_device(line, status);
	if (has_attributes(worker, file))
		bits |= VOLUME_ATTRIBUTES;
	if (line->kind == 'f' && worker->digest && !(bits & VOLUME_SIZE))
		bits |= compare_content(worker, file, number);
	if (line->kind == 'h')
		bits |= compare_link(worker, status); /* last: it may look into another directory */
	return bits;
}

/* One look at the file, by a descriptor that opens nothing of it; all else is by that. */
static unsigned compare(struct worker *worker, int *number)
{
	struct stat status;
	const char *name;
	int folder = parent(worker, worker->line.path, &name);
	int file = folder < 0 ? -1 : openat(folder, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	unsigned bits;

	if (file < 0 || fstat(file, &status) < 0) {
		bool absent = errno == ENOENT || errno == ENOTDIR || errno == ELOOP || errno == EXDEV;

		*number = absent ? 0 : errno;
		bits = absent ? VOLUME_MISSING : VOLUME_UNREADABLE;
	} else {
		bits = compare_file(worker, file, &status, number);
	}
	if (file >= 0)
		close(file);
	return bits;
}

static void fail(struct work *work, const char *message, int number)
{
	pthread_mutex_lock(&work->lock);
	if (!atomic_exchange(&work->failed, true)) {
		snprintf(work->err->message, sizeof work->err->message, "%s", message);
		work->err->number = number;
	}
	pthread_mutex_unlock(&work->lock);
}

static void check_line(struct worker *worker, size_t index)
{
	struct work *work = worker->work;
	const char *text = work->check->text + work->starts[index];
	size_t length = work->starts[index + 1] - work->starts[index] - 1;
	int number = 0;
	unsigned bits;

	if (!volume_line_parse(text, length, &worker->line)) {
		fail(work, "a line is no line of a manifest", 0);
		return;
	}
	bits = compare(worker, &number);
	if (bits) {
		size_t place = atomic_fetch_add(&work->n_findings, 1);

		if (place < work->check->capacity)
			work->check->findings[place] =
				(struct volume_finding){ work->starts[index], bits, number };
	}
}

static void *run(void *argument)
{
	struct work *work = argument;
	struct volume_error err = { .number = 0 };
	struct worker *worker = calloc(1, sizeof *worker);

	if (!worker) {
		fail(work, "out of memory", ENOMEM);
		return NULL;
	}
	worker->work = work;
	if (work->check->content) {
		worker->digest = volume_digest_new(&err);
		if (!worker->digest)
			fail(work, err.message, err.number);
	}
	while (!atomic_load(&work->failed)) {
		size_t start = atomic_fetch_add(&work->next, BATCH);

		if (start >= work->n_lines)
			break;
		for (size_t i = start; i < start + BATCH && i < work->n_lines; i++)
			check_line(worker, i);
	}
	close_folder(worker);
	volume_digest_free(worker->digest);
	free(worker);
	return NULL;
}

/* Where each line starts; NULL when memory is short. The last one's end counts as a start. */
static size_t *find_lines(const char *text, size_t length, size_t *n_lines)
{
	size_t n = 0, place = 0;
	size_t *starts;

	for (const char *at = text; (at = memchr(at, '\n', (size_t)(text + length - at))); at++)
		n++;
	starts = malloc((n + 1) * sizeof *starts);
	if (!starts)
		return NULL;
	starts[place++] = 0;
	for (const char *at = text; (at = memchr(at, '\n', (size_t)(text + length - at))); at++)
		starts[place++] = (size_t)(at - text) + 1;
	*n_lines = n;
	return starts;
}

int volume_check(struct volume_check *check, struct volume_error *err)
{
	pthread_t threads[MAX_THREADS];
	unsigned n_threads = 0;
	struct work work = { .check = check, .err = err, .lock = PTHREAD_MUTEX_INITIALIZER };
	size_t *starts = find_lines(check->text, check->length, &work.n_lines);

	check->n_findings = 0;
	check->bytes = 0;
	if (!starts) {
		snprintf(err->message, sizeof err->message, "out of memory");
		err->number = ENOMEM;
		return -1;
	}
	work.starts = starts;
	while (n_threads < check->threads && n_threads < MAX_THREADS) {
		if (pthread_create(&threads[n_threads], NULL, run, &work) != 0)
			break;
		n_threads++;
	}
	if (n_threads == 0)
		run(&work);
	for (unsigned i = 0; i < n_threads; i++)
		pthread_join(threads[i], NULL);
	free(starts);
	check->n_findings = atomic_load(&work.n_findings);
	check->bytes = atomic_load(&work.bytes);
	if (check->n_findings > check->capacity)
		fail(&work, "there are more findings than room for them", 0);
	return atomic_load(&work.failed) ? -1 : 0;
}
