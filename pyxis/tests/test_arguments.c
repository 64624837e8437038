/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the parsing of the plugin's arguments in plugstack.conf. */
#define _GNU_SOURCE
#include "native/testing/check.h"
#include "pyxis/options/arguments.h"

static struct pyxis_arguments parsed(const char *argument)
{
	struct pyxis_arguments arguments;
	struct jail_error err;

	CHECK(!pyxis_arguments_parse(1, &argument, &arguments, &err));
	return arguments;
}

static void check_wrong(const char *argument, const char *reason)
{
	struct pyxis_arguments arguments;
	struct jail_error err;

	CHECK(pyxis_arguments_parse(1, &argument, &arguments, &err));
	CHECK_HAS(err.message, reason);
	CHECK_HAS(err.message, argument);
}

int main(void)
{
	struct pyxis_arguments arguments;
	struct jail_error err;

	CHECK(!pyxis_arguments_parse(0, NULL, &arguments, &err));
	CHECK(!strcmp(arguments.runtime_path, "/run/pyxis") && arguments.sbatch_support && !arguments.execute_entrypoint &&
	      !arguments.job_scope && !arguments.use_enroot_load && !arguments.importer && arguments.image_mount == PYXIS_MOUNT_AUTO);
	CHECK(parsed("execute_entrypoint=1").execute_entrypoint);
	CHECK(!parsed("sbatch_support=0").sbatch_support);
	CHECK(parsed("use_enroot_load=1").use_enroot_load);
	CHECK(parsed("container_scope=job").job_scope && !parsed("container_scope=global").job_scope);
	CHECK(!strcmp(parsed("runtime_path=/x").runtime_path, "/x") && !strcmp(parsed("importer=/y").importer, "/y"));
	CHECK(!parsed("importer=").importer);
	CHECK(parsed("use_squashfuse=1").image_mount == PYXIS_MOUNT_FUSE);
	CHECK(parsed("use_squashfuse=0").image_mount == PYXIS_MOUNT_AUTO);
	CHECK(parsed("image_mount=unpack").image_mount == PYXIS_MOUNT_UNPACK);
	CHECK(parsed("image_mount=kernel").image_mount == PYXIS_MOUNT_KERNEL);
	check_wrong("container_scope=node", "it is global or job");
	CHECK(parsed("execute_entrypoint=Yes").execute_entrypoint && parsed("use_enroot_load=y").use_enroot_load);
	CHECK(!parsed("sbatch_support=false").sbatch_support && parsed("sbatch_support=true").sbatch_support);
	CHECK(parsed("use_squashfuse=true").image_mount == PYXIS_MOUNT_FUSE);
	check_wrong("execute_entrypoint=on", "it is 1, true, yes, y, 0, false, no or n");
	check_wrong("execute_entrypoint=", "it is 1, true, yes, y, 0, false, no or n");
	check_wrong("importer=get", "an absolute path");
	check_wrong("runtime_path=", "an absolute path");
	check_wrong("image_mount=loop", "it is auto, fuse, unpack or kernel");
	check_wrong("colour=red", "unknown argument");
	return check_result("arguments");
}
