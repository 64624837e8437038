/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes the comparison of a volume with its manifest: any manifest is compared with a tree whose links lead out of
 * it. Nothing outside the tree is ever opened; access times would show it. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "native/testing/fuzz.h"
#include "native/tree_check/check.h"

static int root = -1;
static char base[] = "/tmp/volume-fuzz-XXXXXX";
static char outside[64];

static void write_file(int folder, const char *name)
{
	int fd = openat(folder, name, O_WRONLY | O_CREAT | O_TRUNC, 0644);

	MUST(fd >= 0 && write(fd, "abc", 3) == 3);
	close(fd);
}

static void remove_tree(void)
{
	char command[80];

	snprintf(command, sizeof(command), "rm -rf %s", base);
	(void)!system(command);
}

static void make_tree(void)
{
	MUST(mkdtemp(base));
	atexit(remove_tree);
	int folder = open(base, O_RDONLY | O_DIRECTORY);
	MUST(!mkdirat(folder, "t", 0755) && (root = openat(folder, "t", O_RDONLY | O_DIRECTORY)) >= 0);
	snprintf(outside, sizeof(outside), "%s/x", base);
	write_file(folder, "x");
	MUST(!mkdirat(root, "a", 0755) && !mkdirat(root, "a/b", 0755));
	write_file(root, "f");
	write_file(root, "a/f");
	MUST(!symlinkat("..", root, "l") && !symlinkat("../x", root, "x") && !symlinkat("../..", root, "a/l"));
	MUST(!symlinkat(base, root, "m") && !mkfifoat(root, "p", 0600) && !linkat(root, "f", root, "h", 0));
	close(folder);
}

/* Older than any other time of it, so that even relatime notes a reading. */
static void forget_reading(void)
{
	const struct timespec times[2] = { { 1, 0 }, { .tv_nsec = UTIME_OMIT } };

	MUST(!utimensat(AT_FDCWD, outside, times, 0));
}

static bool was_read(void)
{
	struct stat st;

	return stat(outside, &st) || st.st_atim.tv_sec != 1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct volume_finding findings[4096];
	struct volume_error err = { .number = 0 };
	char *text = malloc(size + 1);

	if (root < 0)
		make_tree();
	if (!text)
		return 0;
	/* The first byte says how; the rest are the lines, of exactly this size. */
	char how = size ? (char)data[0] : 0;
	size_t length = size ? size - 1 : 0;
	char *lines = malloc(length ? length : 1);
	memcpy(lines, data + (size ? 1 : 0), length);
	struct volume_check check = { .root = root, .text = lines, .length = length, .threads = how & 2 ? 3 : 0,
				      .content = how & 1, .findings = findings, .capacity = 4096 };
	forget_reading();
	if (!volume_check(&check, &err)) {
		MUST(check.n_findings <= check.capacity);
		for (size_t i = 0; i < check.n_findings; i++) {
			MUST(findings[i].offset < length && findings[i].bits && findings[i].bits < 4096);
			MUST(!findings[i].offset || lines[findings[i].offset - 1] == '\n');
			MUST(findings[i].number || !(findings[i].bits & VOLUME_UNREADABLE));
		}
	} else {
		MUST(err.message[0]);
	}
	MUST(!was_read());
	free(lines);
	free(text);
	return 0;
}
