/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the grammar of --container-mounts. */
#define _GNU_SOURCE
#include "native/base/scoped.h"
#include "native/testing/check.h"
#include "pyxis/options/request.h"

static void check_line(const char *mount, const char *line, const char *source)
{
	struct jail_error err = { 0 };
	char *found;
	scoped_free char *made = pyxis_mount_line(mount, &found, &err);
	scoped_free char *path = found;

	CHECK(made && !strcmp(made, line));
	if (!made || strcmp(made, line))
		fprintf(stderr, "%s: %s %s\n", mount, made ? made : "-", err.message);
	CHECK(source ? path && !strcmp(path, source) : !path);
}

static void check_wrong(const char *mount, const char *reason)
{
	struct jail_error err = { 0 };
	char *source;

	CHECK(!pyxis_mount_line(mount, &source, &err) && !source);
	CHECK_HAS(err.message, reason);
	CHECK_HAS(err.message, mount);
}

int main(void)
{
	struct pyxis_request request = { 0 };
	struct jail_error err;

	check_line("/src", "/src /src none x-create=auto,rbind", "/src");
	check_line("/src:/dst", "/src /dst none x-create=auto,rbind", "/src");
	check_line("/src:/dst:ro", "/src /dst none x-create=auto,rbind,ro", "/src");
	check_line("/src:/dst:ro+nosuid+rprivate", "/src /dst none x-create=auto,rbind,ro,nosuid,rprivate", "/src");
	check_line("./a:/dst", "./a /dst none x-create=auto,rbind", NULL);
	check_line("/a b$:/c\td", "/a\\040b\\044 /c\\011d none x-create=auto,rbind", "/a b$");
	check_line("tmpfs:/scratch", "tmpfs /scratch tmpfs x-create=dir", NULL);
	check_line("tmpfs:/scratch:size=1m+mode=700", "tmpfs /scratch tmpfs x-create=dir,size=1m,mode=700", NULL);
	check_line("umount:/sys", "umount /sys none x-detach", NULL);
	check_wrong("src:/dst", "the source is a path that begins with . or /");
	check_wrong(":/dst", "the source is empty");
	check_wrong("/src:dst", "the destination begins with . or /");
	check_wrong("/src:", "the destination begins with . or /");
	check_wrong("tmpfs", "the destination begins with . or /");
	check_wrong("/src:/dst:ro:more", "more behind the flags");
	check_wrong("/src:/dst:ro+", "a flag is empty");
	check_wrong("/src:/dst:", "a flag is empty");
	check_wrong("/src:/dst:ro x", "holds a blank");
	check_wrong("/src:/dst:r0", "no option of a bind mount");
	check_wrong("/src:/a/../..", "above the container's root");

	CHECK(!pyxis_request_take(&request, PYXIS_MOUNTS, "/a:/b,/a:/b,/c", &err));
	CHECK(request.mounts.n == 2 && request.sources.n == 2);
	CHECK(!pyxis_request_take(&request, PYXIS_MOUNTS, "/d", &err));
	CHECK(request.mounts.n == 1 && !strcmp(request.sources.items[0], "/d"));
	CHECK(pyxis_request_take(&request, PYXIS_MOUNTS, "/a,", &err));
	CHECK(!strcmp(err.file, "--container-mounts"));
	pyxis_request_free(&request);
	return check_result("mounts");
}
