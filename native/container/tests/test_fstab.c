/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the grammar of fstab lines. What the lines do is tested by running containers. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/mount.h>

#include "native/base/scoped.h"
#include "native/testing/check.h"
#include "native/container/fstab.h"

static const char *lookup(void *context, const char *name)
{
	(void)context;
	return !strcmp(name, "SRC") ? "/a b" : NULL;
}

static const struct expand_request variables = { EXPAND_BRACES, lookup, NULL };

static struct fstab_entry parsed(const char *line)
{
	struct fstab_entry entry = { 0 };
	struct jail_error err;

	CHECK(fstab_parse(line, &variables, &entry, &err) == 1);
	return entry;
}

static void check_guesses(void)
{
	struct fstab_entry entry = parsed("/src");

	CHECK(entry.action == FSTAB_BIND && entry.recursive && entry.create == FSTAB_CREATE_AUTO);
	CHECK(!strcmp(entry.target, "/src"));
	fstab_entry_free(&entry);
	entry = parsed("/src bind");
	CHECK(entry.action == FSTAB_BIND && !entry.recursive && !strcmp(entry.target, "/src"));
	fstab_entry_free(&entry);
	entry = parsed("tmpfs /d");
	CHECK(entry.action == FSTAB_MOUNT && !strcmp(entry.type, "tmpfs") && entry.create == FSTAB_CREATE_AUTO);
	fstab_entry_free(&entry);
	entry = parsed("/src /d ro");
	CHECK(entry.action == FSTAB_BIND && entry.recursive && entry.set == MOUNT_ATTR_RDONLY);
	fstab_entry_free(&entry);
}

static void check_passes(void)
{
	static const struct { const char *line; int pass; } cases[] = {
		{ "/a /b none bind", 0 }, { "/a /b none bind 0 -1", -1 }, { "/a /b none bind -1", -1 }, { "/a /b bind 3 2", 2 },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct fstab_entry entry = parsed(cases[i].line);
		CHECK(entry.pass == cases[i].pass);
		fstab_entry_free(&entry);
	}
}

static void check_options(void)
{
	struct fstab_entry entry = parsed("${SRC} /b\\040c none x-create=file,bind,rw,ro,suid,noatime,nofail,silent,rslave");

	CHECK(!strcmp(entry.source, "/a b") && !strcmp(entry.target, "/b c"));
	CHECK(entry.create == FSTAB_CREATE_FILE && entry.nofail && entry.silent);
	CHECK((entry.set & MOUNT_ATTR_RDONLY) && !(entry.clear & MOUNT_ATTR_RDONLY));
	CHECK(entry.clear & MOUNT_ATTR_NOSUID);
	CHECK(entry.propagation && entry.propagation_recursive);
	fstab_entry_free(&entry);
	scoped_free char *field = fstab_field("/a b\\${SRC}\tc");
	scoped_free char *line = text_format("%s /t", field);
	entry = parsed(line);
	CHECK(!strcmp(entry.source, "/a b\\${SRC}\tc"));
	fstab_entry_free(&entry);
	entry = parsed("tmpfs /t tmpfs size=1m,mode=700,noswap");
	CHECK(entry.n_data == 3 && !strcmp(entry.data[1], "mode=700"));
	fstab_entry_free(&entry);
	entry = parsed("umount /t none x-detach");
	CHECK(entry.action == FSTAB_DETACH);
	fstab_entry_free(&entry);
	entry = parsed("/a /b none x-move,x-create=dir");
	CHECK(entry.action == FSTAB_MOVE);
	fstab_entry_free(&entry);
}

static void check_refusals(void)
{
	static const struct { const char *line, *message; } cases[] = {
		{ "/a /..", "above" }, { "/a /x/../../y", "above" }, { "x", "where" }, { "/a /b none bind,x-create=no", "dir, file" },
		{ "/a b c d e f g", "fields" }, { "${NO} /b", "not set" }, { "/a /b none bind,size=1", "no option of a bind" },
		{ "what /b", "no type" }, { "/a /b none bind x", "not expected" },
	};
	struct fstab_entry entry;
	struct jail_error err;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		CHECK(fstab_parse(cases[i].line, &variables, &entry, &err) == -1);
		CHECK_HAS(err.message, cases[i].message);
	}
	CHECK(fstab_parse("/a /..", &variables, &entry, &err) == -1 && err.number == EXDEV);
	CHECK(fstab_parse("  # comment", &variables, &entry, &err) == 0);
	CHECK(fstab_parse("", &variables, &entry, &err) == 0);
	CHECK(fstab_target_is_inside("/a/../b/./../c"));
	CHECK(!fstab_target_is_inside("a/../../b"));
}

int main(void)
{
	check_guesses();
	check_passes();
	check_options();
	check_refusals();
	return check_result("fstab");
}
