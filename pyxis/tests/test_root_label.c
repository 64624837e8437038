/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the label by which a container root says whose job made it. It must be written safely even if the image has a
 * file, FIFO or link in its place. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "native/base/text.h"
#include "native/base/scoped.h"
#include "native/testing/check.h"
#include "pyxis/step/root_label.h"

static char folder[] = "/tmp/pyxis-test-XXXXXX";
static const struct pyxis_owner owner = { 7, 0, 1000, 1000 };

/* Nothing waits, nothing is opened that is no file: the program would not end, or a device would be written. */
static void check_refused(void)
{
	pyxis_root_label_write(folder, &owner, "cluster");
	CHECK(!pyxis_root_label_is_of(folder, &owner) && !pyxis_root_label_is_temporary(folder, "cluster"));
	errno = 0;
	CHECK(text_open_plain(AT_FDCWD, ".lock", O_RDONLY) < 0 && (errno == EPERM || errno == ENOENT));
	CHECK(!unlink(".lock"));
}

int main(void)
{
	struct stat st;

	CHECK(mkdtemp(folder) && !chdir(folder));
	pyxis_root_label_write(folder, &owner, NULL);
	CHECK(pyxis_root_label_is_of(folder, &owner) && !stat(".lock", &st) && (st.st_mode & 0777) == 0600);
	pyxis_root_label_write(folder, &owner, "cluster");
	CHECK(pyxis_root_label_is_temporary(folder, "cluster") && !unlink(".lock"));
	CHECK(!mkfifo(".lock", 0600));
	check_refused();
	CHECK(!symlink("other", ".lock"));
	check_refused();
	CHECK(access("other", F_OK));
	/* "zero" takes what is written to it. */
	if (!mknod(".lock", S_IFCHR | 0600, makedev(1, 5)))
		check_refused();
	CHECK(!chdir("/") && !rmdir(folder));
	return check_result("root_label");
}
