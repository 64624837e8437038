/* SPDX-License-Identifier: Apache-2.0 */
/* Tests which roots and files beside the containers are taken for leftovers of jobs that are over. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "native/base/scoped.h"
#include "native/testing/check.h"
#include "pyxis/step/leftovers.h"
#include "pyxis/step/root_label.h"
#include "pyxis/step/name_lock.h"

static char folder[] = "/tmp/pyxis-test-XXXXXX";

static char *in_folder(const char *name)
{
	return text_format("%s/%s", folder, name);
}

/* A root that step 0 of `job` made; `cluster` NULL: with a name. */
static void make_root(const char *name, uint32_t job, const char *cluster)
{
	const struct pyxis_owner owner = { job, 0, 0, 0 };
	scoped_free char *root = in_folder(name);

	CHECK(!mkdir(root, 0700));
	pyxis_root_label_write(root, &owner, cluster);
}

static void make_file(const char *name)
{
	scoped_free char *path = in_folder(name);
	scoped_fd fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

	CHECK(fd >= 0);
}

static bool is_there(const char *name)
{
	scoped_free char *path = in_folder(name);

	return !access(path, F_OK);
}

static unsigned found(struct pyxis_leftovers *leftovers, uint32_t job)
{
	for (unsigned i = 0; i < leftovers->n; i++)
		if (leftovers->jobs[i] == job)
			return 1u << i;
	return 0;
}

static void check_leftovers(void)
{
	struct pyxis_leftovers leftovers = { 0 };
	scoped_free char *own = in_folder("pyxis_9.0");

	make_root("pyxis_7.0", 7, "here");
	make_root("pyxis_8.0.1", 8, "here");
	make_root("pyxis_9.0", 9, "here");
	make_root("pyxis_5.0", 5, "elsewhere");
	make_root("pyxis_22.10", 6, NULL);
	make_file(".pyxis_7.1_node@here.sqsh");
	make_file(".pyxis_5.1_node@elsewhere.sqsh");
	pyxis_leftovers_find(&leftovers, own, "here", 9);
	CHECK(leftovers.n == 2 && found(&leftovers, 7) && found(&leftovers, 8));
	CHECK(leftovers.roots.n == 2 && leftovers.files.n == 1);
	/* Job 8 runs on another node. */
	pyxis_leftovers_drop(&leftovers, found(&leftovers, 7));
	CHECK(leftovers.roots.n == 1 && !strcmp(leftovers.roots.items[0], "pyxis_7.0"));
	CHECK(!is_there(".pyxis_7.1_node@here.sqsh") && is_there(".pyxis_5.1_node@elsewhere.sqsh"));
	struct pyxis_leftovers none = { 0 };
	pyxis_leftovers_find(&none, own, "", 9);
	CHECK(!none.n);
	pyxis_leftovers_free(&leftovers);
	pyxis_leftovers_free(&none);
}

/* More than are asked about at once: another job begins elsewhere, and asks about others. */
static void check_many(void)
{
	uint64_t seen = 0;
	scoped_free char *own = in_folder("pyxis_900.0");

	for (uint32_t job = 100; job < 130; job++) {
		scoped_free char *name = text_format("pyxis_%u.0", job);
		make_root(name, job, "many");
	}
	for (uint32_t job = 900; job < 1000; job++) {
		struct pyxis_leftovers leftovers = { 0 };
		pyxis_leftovers_find(&leftovers, own, "many", job);
		CHECK(leftovers.n <= PYXIS_LEFTOVER_JOBS);
		for (unsigned i = 0; i < leftovers.n; i++)
			seen |= (uint64_t)1 << (leftovers.jobs[i] - 100);
		pyxis_leftovers_free(&leftovers);
	}
	CHECK(seen == ((uint64_t)1 << 30) - 1);
}

/* What the epilog of job 7 takes of what is called like its own. */
static void check_marks(void)
{
	scoped_free char *global = pyxis_root_label_pattern(7, false), *job = pyxis_root_label_pattern(7, true);

	CHECK(!fnmatch(global, "7.0 temporary here", 0) && !fnmatch(job, "7.0 temporary here", 0));
	CHECK(fnmatch(global, "7.0", 0) && !fnmatch(job, "7.0", 0));
	CHECK(fnmatch(global, "70.0 temporary here", 0) && fnmatch(job, "70.0", 0));
}

static void check_fifo(void)
{
	scoped_free char *root = in_folder("fifo"), *lock = in_folder("fifo/.lock");
	const struct pyxis_owner owner = { 7, 0, 0, 0 };

	CHECK(!mkdir(root, 0700) && !mkfifo(lock, 0600));
	CHECK(!pyxis_root_label_is_of(root, &owner) && !pyxis_root_label_is_temporary(root, "here"));
	pyxis_root_label_write(root, &owner, NULL);
}

static void check_locks(void)
{
	struct pyxis_name_lock held = PYXIS_NAME_LOCK_NONE, other = PYXIS_NAME_LOCK_NONE;
	scoped_free char *one = in_folder("pyxis_one"), *two = in_folder("pyxis_two");
	struct jail_error err;

	make_file(".pyxis_killed.lock");
	CHECK(!pyxis_name_lock_take(&held, one, &err));
	CHECK(!is_there(".pyxis_killed.lock") && is_there(".pyxis_one.lock"));
	CHECK(!pyxis_name_lock_take(&other, two, &err));
	CHECK(is_there(".pyxis_one.lock") && is_there(".pyxis_two.lock"));
	pyxis_name_lock_drop(&held);
	pyxis_name_lock_drop(&other);
	CHECK(!is_there(".pyxis_one.lock") && !is_there(".pyxis_two.lock"));
}

int main(void)
{
	CHECK(mkdtemp(folder));
	check_leftovers();
	check_many();
	check_marks();
	check_fifo();
	check_locks();
	scoped_free char *remove = text_format("rm -rf %s", folder);
	CHECK(!system(remove));
	return check_result("leftovers");
}
