/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the options --container-* except mounts, alone, together and as environment variables. */
#define _GNU_SOURCE
#include <fnmatch.h>

#include "native/base/scoped.h"
#include "native/testing/check.h"
#include "pyxis/options/request.h"

static struct jail_error err;

static void check_image(const char *value, const char *image)
{
	scoped_request request = { 0 };

	CHECK(!pyxis_request_take(&request, PYXIS_IMAGE, value, &err) && !strcmp(request.image, image));
}

static void check_images(void)
{
	check_image("alpine", "docker://alpine");
	check_image("me@registry.example#team/image:1", "docker://me@registry.example#team/image:1");
	check_image("docker://alpine", "docker://alpine");
	check_image("dockerd://alpine", "dockerd://alpine");
	check_image("./x.sqsh", "./x.sqsh");
	check_image("/x.sqsh", "/x.sqsh");
	CHECK(pyxis_image_is_path("./x") && pyxis_image_is_path("/x") && !pyxis_image_is_path("docker://x"));
	CHECK(!strcmp(pyxis_image_title("docker://a/b"), "a/b") && !strcmp(pyxis_image_title("dockerd://a"), "dockerd://a"));
}

static void check_wrong(enum pyxis_option option, const char *value, const char *reason)
{
	scoped_request request = { 0 };
	char line[1400];

	CHECK(pyxis_request_take(&request, option, value, &err));
	CHECK_HAS(jail_error_format(&err, line, sizeof(line)), reason);
	CHECK_HAS(line, pyxis_option_names[option]);
}

static void check_names(void)
{
	static const struct { const char *text; enum pyxis_name_flag flag; } names[] = {
		{ "one", PYXIS_AUTO }, { "one:auto", PYXIS_AUTO }, { "one:create", PYXIS_CREATE },
		{ "one:exec", PYXIS_EXEC }, { "one:no_exec", PYXIS_NO_EXEC },
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		scoped_request request = { 0 };
		CHECK(!pyxis_request_take(&request, PYXIS_NAME, names[i].text, &err));
		CHECK(!strcmp(request.name, "one") && request.name_flag == names[i].flag);
	}
	check_wrong(PYXIS_NAME, "a/b", "a name holds no \"/\"");
	check_wrong(PYXIS_NAME, "a:run", "unknown flag \"run\"");
	check_wrong(PYXIS_NAME, "a:", "unknown flag \"\"");
	check_wrong(PYXIS_NAME, ":exec", "the name is empty");
	scoped_free char *global = pyxis_container_named("one", 0);
	scoped_free char *of_job = pyxis_container_named("one", 7);
	scoped_free char *unnamed = pyxis_container_unnamed(7, 0);
	CHECK(!strcmp(global, "pyxis_one") && !strcmp(of_job, "pyxis_7_one") && !strcmp(unnamed, "pyxis_7.0"));
}

static void check_errors(void)
{
	static const enum pyxis_option with_value[] = { PYXIS_IMAGE, PYXIS_MOUNTS, PYXIS_WORKDIR, PYXIS_NAME, PYXIS_SAVE,
							PYXIS_ENV, PYXIS_UNSHARE };

	for (size_t i = 0; i < sizeof(with_value) / sizeof(with_value[0]); i++) {
		check_wrong(with_value[i], "", "the value is empty");
		check_wrong(with_value[i], NULL, "the value is empty");
	}
	check_wrong(PYXIS_SAVE, "/tmp/", "ends with \"/\"");
	check_wrong(PYXIS_ENV, "A,,B", "a name is empty");
	check_wrong(PYXIS_ENV, "A,", "a name is empty");
	check_wrong(PYXIS_ENV, "A=1", "sets a value");
	check_wrong(PYXIS_UNSHARE, "net,pid", "unknown namespace 'pid'");
	check_wrong(PYXIS_UNSHARE, "net,", "unknown namespace ''");
}

static void check_switches(void)
{
	static const struct { const char *word; enum pyxis_switch on; } words[] = {
		{ "1", PYXIS_YES }, { "true", PYXIS_YES }, { "yes", PYXIS_YES }, { "y", PYXIS_YES }, { "Y", PYXIS_YES },
		{ "0", PYXIS_NO }, { "false", PYXIS_NO }, { "no", PYXIS_NO }, { "n", PYXIS_NO },
	};
	scoped_request request = { 0 };

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		CHECK(!pyxis_request_take_variable(&request, PYXIS_REMAP_ROOT, words[i].word, &err));
		CHECK(request.remap_root == words[i].on);
	}
	CHECK(!pyxis_request_take_variable(&request, PYXIS_READONLY, "1", &err) && request.writable == PYXIS_NO);
	CHECK(!pyxis_request_take_variable(&request, PYXIS_WRITABLE, "1", &err) && request.writable == PYXIS_YES);
	CHECK(pyxis_request_take_variable(&request, PYXIS_MOUNT_HOME, "maybe", &err));
	CHECK(!strcmp(err.file, "PYXIS_CONTAINER_MOUNT_HOME"));
	CHECK(pyxis_request_take_variable(&request, PYXIS_IMAGE, "", &err));
	CHECK(!pyxis_request_take(&request, PYXIS_NO_MOUNT_HOME, NULL, &err) && request.mount_home == PYXIS_NO);
	CHECK(!pyxis_request_take(&request, PYXIS_ENTRYPOINT, NULL, &err) && request.entrypoint == PYXIS_YES);
	CHECK(!pyxis_request_take(&request, PYXIS_UNSHARE, "net,uts", &err) && request.unshare == (PYXIS_NET | PYXIS_UTS));
	CHECK(!pyxis_request_take(&request, PYXIS_ENV, "A,B", &err) && request.environment.n == 2);
}

/* What the epilog of job 7 removes: nothing that another job made, or that a user called so. */
static void check_patterns(void)
{
	static const struct { const char *name; bool global, job; } names[] = {
		{ "pyxis_7.0", true, true },       { "pyxis_7.4294967291", true, true }, { "pyxis_7.0.1", true, true },
		{ "pyxis_7_one", false, true },    { "pyxis_one", false, false },        { "pyxis_70.0", false, false },
		{ "pyxis_7", false, false },       { "pyxis_17.0", false, false },
	};
	scoped_free char *global = pyxis_container_pattern(7, false);
	scoped_free char *job = pyxis_container_pattern(7, true);

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		CHECK(!fnmatch(global, names[i].name, 0) == names[i].global);
		CHECK(!fnmatch(job, names[i].name, 0) == names[i].job);
	}
}

/* Each option, and each value of its variable, is seen to be given; all that is set to no by a variable as well. */
static void check_given(void)
{
	static const char *const values[PYXIS_N_OPTIONS] = {
		[PYXIS_IMAGE] = "alpine", [PYXIS_MOUNTS] = "/a:/b", [PYXIS_WORKDIR] = "/tmp", [PYXIS_NAME] = "one",
		[PYXIS_SAVE] = "x.sqsh", [PYXIS_ENV] = "A", [PYXIS_UNSHARE] = "uts",
	};

	for (int option = 0; option < PYXIS_N_OPTIONS; option++) {
		scoped_request request = { 0 };
		for (int other = 0; other < PYXIS_N_OPTIONS; other++)
			CHECK(!pyxis_request_gives(&request, (enum pyxis_option)other));
		CHECK(!pyxis_request_take(&request, (enum pyxis_option)option, values[option], &err));
		for (int other = 0; other < PYXIS_N_OPTIONS; other++)
			CHECK(pyxis_request_gives(&request, (enum pyxis_option)other) == (other == option));
	}
	scoped_request request = { 0 };
	CHECK(!pyxis_request_take_variable(&request, PYXIS_ENTRYPOINT_LOG, "no", &err));
	CHECK(!pyxis_request_gives(&request, PYXIS_ENTRYPOINT_LOG));
	CHECK(!pyxis_request_take_variable(&request, PYXIS_ENTRYPOINT, "no", &err));
	CHECK(pyxis_request_gives(&request, PYXIS_NO_ENTRYPOINT));
}

/* Of a job's environment both variables are read, the one for writable first. */
static void check_contradiction(void)
{
	static const struct { const char *writable, *readonly; enum pyxis_switch on; } pairs[] = {
		{ "1", "1", PYXIS_UNSET }, { "0", "0", PYXIS_UNSET }, { "1", "0", PYXIS_YES }, { "0", "1", PYXIS_NO },
	};

	for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
		scoped_request request = { 0 };
		CHECK(!pyxis_request_take_variable(&request, PYXIS_WRITABLE, pairs[i].writable, &err));
		bool wrong = pyxis_request_take_variable(&request, PYXIS_READONLY, pairs[i].readonly, &err);
		CHECK(wrong == (pairs[i].on == PYXIS_UNSET));
		if (wrong) {
			CHECK(!strcmp(err.file, "PYXIS_CONTAINER_READONLY"));
			CHECK_HAS(err.message, "PYXIS_CONTAINER_WRITABLE is set, too");
		} else {
			CHECK(request.writable == pairs[i].on);
		}
	}
}

/* As a crafted request to slurmctld may have it: what srun's command line is too short for. */
static void check_large(void)
{
	struct text_buffer mounts = { 0 };
	scoped_free char *image = calloc(1, 1024 * 1024 + 2);

	memset(image, 'a', 1024 * 1024 + 1);
	check_wrong(PYXIS_IMAGE, image, "longer than a MiB");
	for (int i = 0; i < 200000; i++) {
		scoped_free char *mount = text_format("%s/%x", i ? "," : "", (unsigned)i);
		if (mounts.length + strlen(mount) <= 1024UL * 1024)
			text_append_string(&mounts, mount);
	}
	check_wrong(PYXIS_MOUNTS, mounts.text, "more than 1000 mounts");
	text_buffer_free(&mounts);
}

int main(void)
{
	check_large();
	check_images();
	check_names();
	check_errors();
	check_switches();
	check_patterns();
	check_given();
	check_contradiction();
	return check_result("request");
}
