/* SPDX-License-Identifier: Apache-2.0 */
/* Checks that the jail is mounted and answers, has the cluster's release, and is the same volume as on
 * other nodes. node_checks.c calls it. Users write in the jail, so files there are read as data, with a
 * limit and without waiting. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "native/base/scoped.h"
#include "native/base/sys.h"
#include "native/base/text.h"

#define VOLUME "/mnt/jail"
#define RELEASE "/usr/lib/cellblock/slurm-release"
#define RELEASE_IN_JAIL "etc/cellblock/jail-release"
/* Of other nodes' tokens, so many are read: one that is fresh suffices. */
#define TOKENS_READ 8
#define TOKEN_GONE_S (30 * 86400)

static const char *volume(void)
{
	return check_word("volume", VOLUME);
}

/* In this namespace, by the kernel's list: the file system is not touched. */
static bool is_mounted(const char *path, bool *known)
{
	scoped_free char *mounts = check_read("/proc/self/mountinfo");
	char *rest = mounts, *line;

	*known = mounts != NULL;
	while (rest && (line = strsep(&rest, "\n"))) {
		/* Number, parent, device, root within the file system; then the mount point. */
		for (int i = 0; i < 4 && line; i++)
			strsep(&line, " ");
		if (line && !strcmp(strsep(&line, " "), path))
			return true;
	}
	return false;
}

/* A file that users may have replaced. A new string, or NULL and errno. */
static char *read_in_jail(int root, const char *path)
{
	scoped_fd fd = sys_openat2(root, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS);
	struct stat st;
	char text[4096];

	if (fd < 0 || fstat(fd, &st))
		return NULL;
	if (!S_ISREG(st.st_mode)) {
		errno = EINVAL;
		return NULL;
	}
	ssize_t length = read(fd, text, sizeof(text) - 1);
	return length < 0 ? NULL : text_copy(text, (size_t)length);
}

static int compare_release(int root)
{
	scoped_free char *own = check_read(check_word("release", RELEASE)), *theirs = read_in_jail(root, RELEASE_IN_JAIL);
	char release[16] = "";

	if (!own)
		return check_could_not_run(RELEASE ": %s", strerrordesc_np(errno));
	if (!theirs)
		return check_failed("the jail's /" RELEASE_IN_JAIL ": %s", strerrordesc_np(errno));
	own[strcspn(own, "\n")] = 0;
	char *line = strstr(theirs, "SLURM_RELEASE=");
	if (line)
		sscanf(line, "SLURM_RELEASE=%15[0-9.]", release);
	if (strcmp(own, release))
		return check_failed("the jail is of Slurm %s, this node of %.15s", release[0] ? release : "(none)", own);
	return CHECK_PASSED;
}

static int look_at_jail(void)
{
	scoped_free char *path = text_format("%s/root", volume());
	scoped_fd root = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	struct stat st;

	if (root < 0)
		return check_failed("%s: %s", path, strerrordesc_np(errno));
	scoped_fd passwd = sys_openat2(root, "etc/passwd", O_PATH | O_CLOEXEC, RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS);
	if (passwd < 0 || fstat(passwd, &st))
		return check_failed("the jail's /etc/passwd: %s", strerrordesc_np(errno));
	return compare_release(root);
}

int check_jail(void)
{
	bool known, mounted = is_mounted(volume(), &known);

	if (!known)
		return check_could_not_run("/proc/self/mountinfo: %s", strerrordesc_np(errno));
	if (!mounted)
		return check_failed("the jail's volume is not mounted at %s", volume());
	return check_bounded(look_at_jail, "the jail", (unsigned)check_number("answer", 5));
}

/* Tells others that this node sees the volume. */
static int renew_token(int folder)
{
	scoped_free char *name = text_copy(check_node(), strlen(check_node())), *draft = text_format(".%s.new", name);
	scoped_free char *text = text_format("%lld\n", (long long)time(NULL));
	scoped_fd fd = openat(folder, draft, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);

	return fd < 0 || text_write(fd, text, strlen(text)) || renameat(folder, draft, folder, name) ? -1 : 0;
}

static long long token_age(int folder, const char *name)
{
	scoped_fd fd = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	char text[32] = "";

	if (fd < 0 || read(fd, text, sizeof(text) - 1) <= 0)
		return -1;
	return (long long)time(NULL) - strtoll(text, NULL, 10);
}

/* Seconds since the newest of some tokens of other nodes; -1: there are none. From a place that differs from turn to turn. */
static long long newest(int folder)
{
	DIR *entries = fdopendir(openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	struct dirent *entry;
	long long best = -1;
	unsigned read = 0, skipped = 0, skip;

	if (!entries)
		return -1;
	for (skip = 0; (entry = readdir(entries)); skip++)
		;
	skip = skip > TOKENS_READ ? (unsigned)(time(NULL) / 7) % (skip - TOKENS_READ) : 0;
	rewinddir(entries);
	while ((entry = readdir(entries)) && read < TOKENS_READ) {
		if (entry->d_name[0] == '.' || !strcmp(entry->d_name, check_node()) || skipped++ < skip)
			continue;
		long long age = token_age(folder, entry->d_name);
		if (age > TOKEN_GONE_S)
			unlinkat(folder, entry->d_name, 0);
		else if (age >= 0 && (best < 0 || age < best))
			best = age;
		read++;
	}
	closedir(entries);
	return best;
}

static int look_at_tokens(void)
{
	scoped_free char *path = text_format("%s/.cellblock/health", volume());
	long long most = (long long)check_number("most", 7200);

	mkdir(path, 0700);
	scoped_fd folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (folder < 0)
		return check_could_not_run("%s: %s", path, strerrordesc_np(errno));
	if (renew_token(folder))
		return check_failed("%s cannot be written: %s", path, strerrordesc_np(errno));
	long long age = newest(folder);
	if (age > most)
		return check_failed("no other node has written to this volume for %lld s: is it the one that they have?", age);
	return CHECK_PASSED;
}

int check_shared(void)
{
	return check_bounded(look_at_tokens, "the jail's volume", (unsigned)check_number("answer", 10));
}
