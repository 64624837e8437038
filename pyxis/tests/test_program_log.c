/* SPDX-License-Identifier: Apache-2.0 */
/* Tests how messages of programs are kept, cut into lines and shown, and that a full disk is recognised. */
#define _GNU_SOURCE
#include <unistd.h>

#include "native/base/text.h"
#include "native/base/scoped.h"
#include "native/testing/check.h"
#include "pyxis/step/program_log.h"
#include "pyxis/step/disk_space.h"
#include "pyxis/step/runtime.h"

static void check_lines(void)
{
	scoped_free char *last = pyxis_log_reason("[INFO] a\n[ERROR] first\n[ERROR] second\nmore\n");
	scoped_free char *cut = pyxis_log_reason("[ERROR] without an end");
	scoped_free char *inside = pyxis_log_reason("he said [ERROR] no\n");
	scoped_free char *long_one = pyxis_log_reason("[ERROR] unauthorised\n  looked for in:\n    ~/.netrc\n  next: log in\nmore\n");
	CHECK(last && !strcmp(last, "second"));
	CHECK(long_one && !strcmp(long_one, "unauthorised\n  looked for in:\n    ~/.netrc\n  next: log in"));
	CHECK(cut && !strcmp(cut, "without an end"));
	CHECK(!inside);
	scoped_free char *latest = pyxis_log_latest("[INFO] 1 of 2\n[INFO] 2 of 2\n[INFO] 3 o");
	scoped_free char *plain = pyxis_log_latest("an importer's\n");
	scoped_free char *empty = pyxis_log_latest("a\n\n");
	scoped_free char *begun = pyxis_log_latest("[INFO] not whole");
	CHECK(latest && !strcmp(latest, "2 of 2"));
	CHECK(plain && !strcmp(plain, "an importer's"));
	CHECK(!empty && !begun);
}

static void check_text(void)
{
	struct jail_error err;
	scoped_fd log = pyxis_log_open(&err);
	off_t end = 0;

	CHECK(log >= 0 && !pyxis_log_text(log, 0, NULL) && !pyxis_log_text(-1, 0, NULL));
	CHECK(write(log, "one\n", 4) == 4);
	scoped_free char *one = pyxis_log_text(log, 0, &end);
	CHECK(one && !strcmp(one, "one\n") && end == 4);
	CHECK(!pyxis_log_text(log, end, &end) && end == 4);
	/* What was read has not moved the place at which is written. */
	CHECK(write(log, "two\n", 4) == 4);
	scoped_free char *two = pyxis_log_text(log, end, &end);
	CHECK(two && !strcmp(two, "two\n") && end == 8);
	for (int i = 0; i < 300; i++) {
		char block[4096];
		memset(block, 'x', sizeof(block));
		CHECK(write(log, block, sizeof(block)) == sizeof(block));
	}
	CHECK(write(log, "end", 3) == 3);
	scoped_free char *large = pyxis_log_text(log, 0, NULL);
	CHECK(large && strlen(large) == 1024 * 1024 && text_ends(large, "xend"));
	CHECK(!pyxis_log_clear(log, &err) && write(log, "new", 3) == 3);
	scoped_free char *cleared = pyxis_log_text(log, 0, NULL);
	CHECK(cleared && !strcmp(cleared, "new"));
}

struct heard {
	int log, times;
	char *latest;
};

static void hear(void *context)
{
	struct heard *heard = context;
	scoped_free char *text = pyxis_log_text(heard->log, 0, NULL);

	heard->times++;
	free(heard->latest);
	heard->latest = text ? pyxis_log_latest(text) : NULL;
}

static void check_meanwhile(void)
{
	struct jail_error err;
	struct variables environment = { 0 };
	scoped_fd log = pyxis_log_open(&err);
	struct heard heard = { log, 0, NULL };
	const struct pyxis_meanwhile meanwhile = { 20, hear, &heard };
	char *slow[] = { (char *)"/bin/sh", (char *)"-c", (char *)"echo '[INFO] half of it' >&2; sleep 0.2; echo a path; exit 3", NULL };
	char *quick[] = { (char *)"/bin/true", NULL };
	scoped_buffer output = { 0 };

	variables_set(&environment, "PATH", "/usr/bin:/bin");
	CHECK(pyxis_runtime_run(slow, &environment, log, 0, &output, &meanwhile, &err) == 3);
	CHECK(heard.times >= 3 && heard.latest && !strcmp(heard.latest, "half of it"));
	CHECK(output.text && !strcmp(output.text, "a path\n"));
	/* With no output to wait for it waits for the process itself. */
	heard.times = 0;
	CHECK(pyxis_runtime_run(slow, &environment, log, 0, NULL, &meanwhile, &err) == 3 && heard.times >= 3);
	heard.times = 0;
	CHECK(!pyxis_runtime_run(quick, &environment, log, 0, NULL, NULL, &err) && !heard.times);
	free(heard.latest);
	variables_free(&environment);
}

static void check_room(void)
{
	scoped_free char *other = pyxis_disk_space_advice("[ERROR] unauthorised", "/tmp", 0);
	scoped_free char *import = pyxis_disk_space_advice("[INFO] Importing docker://x: 3 layers, 1.2 GiB\n[ERROR] pwrite: No space left "
							   "on device (ENOSPC): no\n", "/tmp", 0);
	scoped_free char *unpack = pyxis_disk_space_advice("write failed: No space left on device", "/tmp", 3ULL << 30);
	scoped_free char *unknown = pyxis_disk_space_advice("ENOSPC", "/no/such/folder", 0);
	scoped_free char *quota = pyxis_disk_space_advice("write failed: Disk quota exceeded", "/tmp", 0);
	scoped_free char *elsewhere = pyxis_disk_space_advice("[ERROR] open: Permission denied (EACCES)", "/tmp", 0);
	scoped_free char *unwritable = pyxis_disk_space_advice("[ERROR] open: Read-only file system (EROFS)", "/proc/none", 0);

	CHECK(!other);
	CHECK_HAS(import ? import : "", "/tmp has ");
	CHECK_HAS(import ? import : "", "needs more than 1.2 GiB");
	CHECK_HAS(unpack ? unpack : "", "needs more than 3.0 GiB");
	CHECK_HAS(unknown ? unknown : "", "an unknown amount free. Remove");
	CHECK_HAS(quota ? quota : "", "/tmp: the user's quota is used up");
	CHECK(!elsewhere);
	CHECK_HAS(unwritable ? unwritable : "", "the user cannot write there on this node");
}

int main(void)
{
	check_lines();
	check_text();
	check_meanwhile();
	check_room();
	return check_result("program_log");
}
