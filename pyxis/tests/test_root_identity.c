/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that a container's root is not confused with a new directory of the same name. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "native/base/scoped.h"
#include "native/base/text.h"
#include "native/testing/check.h"
#include "pyxis/step/root_identity.h"

int main(void)
{
	char folder[] = "/var/tmp/pyxis-root-XXXXXX";
	CHECK(mkdtemp(folder));
	scoped_free char *path = text_format("%s/root", folder), *away = text_format("%s/.enroot-1-1", folder);

	CHECK(!mkdir(path, 0755));
	const struct pyxis_root_identity begun = pyxis_root_of_path(path);
	const struct pyxis_root_identity unchanged = pyxis_root_of_path(path);
	CHECK(pyxis_root_is_same(&begun, &unchanged));

	/* Many file systems give its number to the next directory. Their clock ticks every some milliseconds. */
	CHECK(!rmdir(path) && !usleep(20000));
	const struct pyxis_root_identity none = pyxis_root_of_path(path);
	CHECK(!pyxis_root_is_same(&begun, &none) && !pyxis_root_is_same(&none, &none));
	CHECK(!mkdir(path, 0755));
	const struct pyxis_root_identity remade = pyxis_root_of_path(path);
	CHECK(!pyxis_root_is_same(&begun, &remade));

	/* A process runs where it began, whatever has the path now. */
	CHECK(!rename(path, away));
	const struct pyxis_root_identity own = pyxis_root_of_process(getpid()), top = pyxis_root_of_path("/");
	CHECK(pyxis_root_is_same(&own, &top));
	CHECK(!rmdir(away) && !rmdir(folder));
	return check_result("root_identity");
}
