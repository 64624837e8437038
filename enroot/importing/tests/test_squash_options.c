/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the options of mksquashfs in ENROOT_SQUASH_OPTIONS, and the errors for unknown ones. */
#define _GNU_SOURCE
#include <stdlib.h>

#include "native/testing/check.h"
#include "enroot/importing/squash_options.h"

static struct jail_error err;

static int parse(struct squashfs_options *options, const char *text)
{
	struct settings settings = { 0 };

	variables_set(&settings.variables, "ENROOT_SQUASH_OPTIONS", text);
	variables_set(&settings.variables, "ENROOT_MAX_PROCESSORS", "3");
	int result = squash_options(options, &settings, 1234, &err);
	settings_free(&settings);
	return result;
}

int main(void)
{
	struct squashfs_options options = { .level = 0 };

	CHECK(!parse(&options, ""));
	CHECK(options.compression == SQUASHFS_LZ4 && options.jobs == 3 && options.time == 1234);
	CHECK(options.newest == INT64_MAX);
	CHECK(!parse(&options, "-comp zstd -Xcompression-level 19 -b 1M -processors 2 -noI"));
	CHECK(options.level == 19 && options.block_size == 1 << 20 && options.jobs == 2 && options.plain_inodes);
	CHECK(!parse(&options, " -comp gzip\t-b 131072 -no-xattrs -mem 1G -noappend -always-use-fragments"));
	CHECK(options.compression == SQUASHFS_GZIP && options.level == 6 && options.no_xattrs && options.always_fragments);
	CHECK(!parse(&options, "-comp lz4 -Xhc") && options.level == 12);
	/* What configurations of upstream have. */
	CHECK(!parse(&options, "-comp lzo -noD -exit-on-error"));
	CHECK(options.compression == SQUASHFS_LZ4 && options.level == 1 && options.plain_data);
	const char *const wrong[] = { "-comp bzip3", "-b 100K", "-b", "-b 2M", "-Xcompression-level 30", "-nonsense",
				      "-comp gzip -Xcompression-level 12", "-processors 0", "-mem" };
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		CHECK(parse(&options, wrong[i]) == -1);
		CHECK(!strcmp(err.target, "ENROOT_SQUASH_OPTIONS"));
	}
	setenv("SOURCE_DATE_EPOCH", "77", 1);
	CHECK(!parse(&options, "") && options.time == 77 && options.newest == 77);
	setenv("SOURCE_DATE_EPOCH", "yesterday", 1);
	CHECK(parse(&options, "") == -1);
	return check_result("squash_options");
}
