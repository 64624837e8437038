/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the environment of a task in its container, and the variables that enroot is given. */
#define _GNU_SOURCE
#include "native/base/scoped.h"
#include "native/testing/check.h"
#include "pyxis/step/runtime.h"
#include "pyxis/step/task.h"

static bool has(const struct text_list *list, const char *text)
{
	for (size_t i = 0; i < list->n; i++)
		if (!strcmp(list->items[i], text))
			return true;
	return false;
}

static void check_task(void)
{
	char *task[] = { (char *)"LANG=C", (char *)"A=job", (char *)"B=job", (char *)"PMIX_RANK=3", (char *)"TERM=xterm",
			 (char *)"SLURM_PROCID=3", (char *)"SLURM_LOCALID=1", NULL };
	static const char *const inside[] = { "A=image", "B=image", "NEW=1", "PMIX_RANK=0", "SLURM_PROCID=0", "TERM=dumb",
					      "PYTORCH_VERSION=2", "LC_ALL=C.UTF-8" };
	struct variables container = { 0 };
	scoped_list changes = { 0 };
	scoped_request request = { 0 };
	struct jail_error err;

	for (size_t i = 0; i < sizeof(inside) / sizeof(inside[0]); i++)
		text_list_add(&container.list, inside[i]);
	CHECK(!pyxis_request_take(&request, PYXIS_ENV, "B,LANGUAGE", &err));
	pyxis_task_environment(task, &container, &request, &changes);
	CHECK(has(&changes, "A=image") && has(&changes, "NEW=1"));
	CHECK(!has(&changes, "B=image"));
	CHECK(!has(&changes, "PMIX_RANK=0") && !has(&changes, "SLURM_PROCID=0"));
	CHECK(!has(&changes, "TERM=dumb"));
	CHECK(has(&changes, "LANG") && has(&changes, "LC_ALL") && has(&changes, "LC_ALL=C.UTF-8") && !has(&changes, "LANGUAGE"));
	CHECK(has(&changes, "RANK=3") && has(&changes, "LOCAL_RANK=1"));
	variables_free(&container);
}

/* Where the image says nothing of it, a job may; and a rank that the user asks to keep is kept. */
static void check_ranks(void)
{
	char *plain[] = { (char *)"SLURM_PROCID=3", (char *)"SLURM_LOCALID=1", NULL };
	char *torch[] = { (char *)"SLURM_PROCID=3", (char *)"SLURM_LOCALID=1", (char *)"PYTORCH_VERSION=2", (char *)"RANK=7", NULL };
	struct variables container = { 0 };
	scoped_list none = { 0 }, both = { 0 }, one = { 0 };
	scoped_request request = { 0 };
	struct jail_error err;

	pyxis_task_environment(plain, &container, &request, &none);
	CHECK(!has(&none, "RANK=3") && !has(&none, "LOCAL_RANK=1"));
	pyxis_task_environment(torch, &container, &request, &both);
	CHECK(has(&both, "RANK=3") && has(&both, "LOCAL_RANK=1"));
	CHECK(!pyxis_request_take(&request, PYXIS_ENV, "RANK", &err));
	pyxis_task_environment(torch, &container, &request, &one);
	CHECK(!has(&one, "RANK=3") && has(&one, "LOCAL_RANK=1"));
}

/* LANG and its kind are the container's, which may have none; listed they are the job's. */
static void check_languages(void)
{
	static const char *const names[] = { "LANG", "LANGUAGE", "LC_ALL" };
	char *task[] = { (char *)"LANG=job", (char *)"LANGUAGE=job", (char *)"LC_ALL=job", (char *)"LC_TIME=job", NULL };

	for (size_t i = 0; i < 3; i++) {
		struct variables container = { 0 };
		scoped_list unset = { 0 }, kept = { 0 };
		scoped_request request = { 0 };
		struct jail_error err;

		pyxis_task_environment(task, &container, &request, &unset);
		CHECK(has(&unset, names[i]) && !has(&unset, "LC_TIME"));
		CHECK(!pyxis_request_take(&request, PYXIS_ENV, names[i], &err));
		variables_set(&container, names[i], "image");
		pyxis_task_environment(task, &container, &request, &kept);
		scoped_free char *images = text_format("%s=image", names[i]);
		CHECK(!has(&kept, names[i]) && !has(&kept, images));
		variables_free(&container);
	}
}

/* The hook for PMI copied the variables of the step that began the container; an image may have a SLURM_CONF. */
static void check_joined(void)
{
	char *task[] = { (char *)"SLURM_STEP_ID=1", (char *)"SLURM_CONF=job", NULL };
	const struct pyxis_request request = { 0 };
	struct variables container = { 0 };
	scoped_list images = { 0 }, steps = { 0 };

	variables_set(&container, "SLURM_CONF", "image");
	pyxis_task_environment(task, &container, &request, &images);
	CHECK(has(&images, "SLURM_CONF=image"));
	variables_set(&container, "SLURM_JOB_ID", "7");
	variables_set(&container, "SLURM_STEP_ID", "0");
	variables_set(&container, "SLURM_OTHER", "0");
	pyxis_task_environment(task, &container, &request, &steps);
	CHECK(!has(&steps, "SLURM_STEP_ID=0") && !has(&steps, "SLURM_CONF=image") && has(&steps, "SLURM_OTHER=0"));
	variables_free(&container);
}

static void check_kept_back(const struct pyxis_owner *owner, const struct pyxis_arguments *arguments)
{
	static const char *const kept_back[] = {
		"LD_LIBRARY_PATH", "LD_PRELOAD", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_TASK_PID", "PMIX_RANK", "PMI_FD",
		"ENROOT_LIBRARY_PATH", "ENROOT_SYSCONF_PATH", "ENROOT_RUNTIME_PATH", "ENROOT_CACHE_PATH", "ENROOT_DATA_PATH",
		"ENROOT_TEMP_PATH", "ENROOT_ZSTD_OPTIONS", "ENROOT_TRANSFER_RETRIES", "ENROOT_CONNECT_TIMEOUT",
		"ENROOT_MAX_CONNECTIONS", "ENROOT_ALLOW_HTTP",
	};
	static const char *const passed[] = { "ENROOT_CONFIG_PATH", "ENROOT_SQUASH_OPTIONS", "SLURM_JOB_ID", "PMIX_NAMESPACE",
					      "PMI_RANK", "SLURM_PROCIDS", "HOME" };
	const struct pyxis_request request = { 0 };

	for (size_t i = 0; i < sizeof(kept_back) / sizeof(kept_back[0]) + sizeof(passed) / sizeof(passed[0]); i++) {
		bool back = i < sizeof(kept_back) / sizeof(kept_back[0]);
		const char *name = back ? kept_back[i] : passed[i - sizeof(kept_back) / sizeof(kept_back[0])];
		scoped_free char *pair = text_format("%s=job", name);
		char *job[] = { pair, NULL };
		struct variables environment = { 0 };

		pyxis_runtime_environment(&environment, job, owner, &request, arguments);
		const char *value = variables_get(&environment, name);
		CHECK(back ? !value : value && !strcmp(value, "job"));
		variables_free(&environment);
	}
}

static void check_runtime(void)
{
	char *job[] = { (char *)"PATH=/job", (char *)"LD_PRELOAD=x", (char *)"SLURM_PROCID=1", (char *)"SLURM_JOB_ID=7",
			(char *)"ENROOT_DATA_PATH=/x", (char *)"ENROOT_CONFIG_PATH=/c", (char *)"PATHS=kept", NULL };
	const struct pyxis_owner owner = { 7, 0, 1000, 100 };
	const struct pyxis_arguments arguments = { .runtime_path = "/run/pyxis" };
	scoped_request request = { .remap_root = PYXIS_YES, .writable = PYXIS_NO, .unshare = PYXIS_IPC };
	struct variables environment = { 0 };

	CHECK(!setenv("PATH", "/slurmstepd", 1));
	pyxis_runtime_environment(&environment, job, &owner, &request, &arguments);
	CHECK(!strcmp(variables_get(&environment, "PATH"), "/slurmstepd"));
	CHECK(!variables_get(&environment, "LD_PRELOAD") && !variables_get(&environment, "SLURM_PROCID") &&
	      !variables_get(&environment, "ENROOT_DATA_PATH"));
	CHECK(variables_get(&environment, "SLURM_JOB_ID") && variables_get(&environment, "ENROOT_CONFIG_PATH") &&
	      variables_get(&environment, "PATHS"));
	CHECK(!strcmp(variables_get(&environment, "PYXIS_RUNTIME_PATH"), "/run/pyxis") &&
	      variables_get(&environment, "PYXIS_VERSION"));
	CHECK(!strcmp(variables_get(&environment, "SLURM_JOB_UID"), "1000") &&
	      !strcmp(variables_get(&environment, "SLURM_JOB_GID"), "100"));
	CHECK(!strcmp(variables_get(&environment, "ENROOT_REMAP_ROOT"), "y") &&
	      !strcmp(variables_get(&environment, "ENROOT_ROOTFS_WRITABLE"), "n") &&
	      !variables_get(&environment, "ENROOT_MOUNT_HOME") && !variables_get(&environment, "ENROOT_UNSHARE_NET") &&
	      !strcmp(variables_get(&environment, "ENROOT_UNSHARE_IPC"), "y"));
	CHECK(!variables_get(&environment, "ENROOT_KERNEL_IMAGES"));
	variables_free(&environment);
	const struct pyxis_arguments kernel = { .runtime_path = "/run/pyxis", .image_mount = PYXIS_MOUNT_KERNEL };
	struct variables kernels = { 0 };
	pyxis_runtime_environment(&kernels, NULL, &owner, &request, &kernel);
	CHECK(!strcmp(variables_get(&kernels, "ENROOT_KERNEL_IMAGES"), "y"));
	variables_free(&kernels);
	check_kept_back(&owner, &arguments);
}

int main(void)
{
	check_task();
	check_ranks();
	check_languages();
	check_joined();
	check_runtime();
	return check_result("environment");
}
