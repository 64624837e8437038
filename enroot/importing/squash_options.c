/* SPDX-License-Identifier: Apache-2.0 */
/* Parses the setting ENROOT_SQUASH_OPTIONS, options of mksquashfs, for our own squashfs writer.
 * produce.c calls it. */
#define _GNU_SOURCE
#include "squash_options.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "native/base/scoped.h"
#include "native/base/report.h"

/* Measured: docs/decisions/enroot-import.md. */
#define LEVEL_ZSTD 3 /* mksquashfs would take 15, and ten times as long */
#define BLOCK_SIZE ((size_t)128 << 10)
#define LEVEL_UNSET INT32_MIN
#define JOBS_MOST 1024 /* each has blocks of its own */

/* Those that this writer has no need of, as it reads no directory; with the number of their values. */
static const struct { const char *name; int values; } ignored_options[] = {
	{ "-noappend", 0 },    { "-no-progress", 0 },      { "-progress", 0 },   { "-quiet", 0 },	 { "-info", 0 },
	{ "-exit-on-error", 0 }, { "-no-duplicates", 0 },  { "-all-root", 0 },   { "-root-owned", 0 }, { "-no-strip", 0 },
	{ "-no-recovery", 0 }, { "-recovery-path", 1 },    { "-mem", 1 },        { "-mem-percent", 1 }, { "-keep-as-directory", 0 },
	{ "-reproducible", 0 }, { "-not-reproducible", 0 }, { "-no-sparse", 0 }, { "-xattrs", 0 },
	{ "-exports", 0 },     { "-no-tailends", 0 },      { "-no-hardlinks", 0 }, { "-read-queue", 1 }, { "-write-queue", 1 },
	{ "-fragment-queue", 1 },
};

struct reader {
	struct squashfs_options *options;
	char *rest;
	struct jail_error *err;
};

static int fail_option(const struct reader *reader, const char *option, const char *message)
{
	jail_fail(reader->err, NULL, 0, "%.60s: %s", option, message);
	return jail_error_at(reader->err, NULL, 0, "ENROOT_SQUASH_OPTIONS");
}

static const char *word(struct reader *reader)
{
	char *one;

	while ((one = strsep(&reader->rest, " \t\n")))
		if (*one)
			return one;
	return NULL;
}

/* A whole number, with K or M behind it for bytes. -1: none. */
static long long number(const char *text)
{
	char *end;

	if (!text || *text < '0' || *text > '9')
		return -1;
	errno = 0;
	long long value = strtoll(text, &end, 10);
	if (errno || value > 1LL << 40)
		return -1;
	if (*end == 'K' || *end == 'k')
		return end[1] ? -1 : value << 10;
	if (*end == 'M' || *end == 'm')
		return end[1] ? -1 : value << 20;
	return *end ? -1 : value;
}

static int compression(struct reader *reader)
{
	const char *name = word(reader);
	struct squashfs_options *options = reader->options;

	if (!name)
		return fail_option(reader, "-comp", "needs the name of a compressor: zstd, lz4 or gzip");
	if (!strcmp(name, "zstd")) {
		options->compression = SQUASHFS_ZSTD;
	} else if (!strcmp(name, "lz4")) {
		options->compression = SQUASHFS_LZ4;
	} else if (!strcmp(name, "gzip")) {
		options->compression = SQUASHFS_GZIP;
	} else if (!strcmp(name, "lzo")) {
		/* What configurations of upstream say, as its default was that. */
		report_info("ENROOT_SQUASH_OPTIONS: lz4 in the place of lzo, which is slower and no smaller");
		options->compression = SQUASHFS_LZ4;
	} else if (!strcmp(name, "xz") || !strcmp(name, "lzma")) {
		report_info("ENROOT_SQUASH_OPTIONS: zstd in the place of %s", name);
		options->compression = SQUASHFS_ZSTD;
	} else {
		return fail_option(reader, name, "is no compressor; there are zstd, lz4 and gzip");
	}
	return 0;
}

static int with_value(struct reader *reader, const char *option, bool *known)
{
	struct squashfs_options *options = reader->options;
	long long value;

	*known = true;
	if (!strcmp(option, "-comp"))
		return compression(reader);
	if (!strcmp(option, "-b")) {
		value = number(word(reader));
		if (value < 4096 || value > 1 << 20 || (value & (value - 1)))
			return fail_option(reader, option, "needs a block size: a power of two from 4K to 1M");
		options->block_size = (size_t)value;
	} else if (!strcmp(option, "-Xcompression-level")) {
		value = number(word(reader));
		if (value < 1 || value > 22)
			return fail_option(reader, option, "needs a level: of zstd 1 to 22, of gzip 1 to 9");
		options->level = (int)value;
	} else if (!strcmp(option, "-processors")) {
		value = number(word(reader));
		if (value < 1 || value > JOBS_MOST)
			return fail_option(reader, option, "needs a number of processors");
		options->jobs = (unsigned)value;
	} else if (!strcmp(option, "-mkfs-time") || !strcmp(option, "-fstime")) {
		if ((options->time = number(word(reader))) < 0)
			return fail_option(reader, option, "needs seconds since 1970");
	} else {
		*known = false;
	}
	return 0;
}

static bool flag(struct squashfs_options *options, const char *option)
{
	const struct { const char *name; bool *flag; } flags[] = {
		{ "-noI", &options->plain_inodes },	 { "-noInodeCompression", &options->plain_inodes },
		{ "-noId", &options->plain_inodes },	 { "-noIdTableCompression", &options->plain_inodes },
		{ "-noD", &options->plain_data },	 { "-noDataCompression", &options->plain_data },
		{ "-noF", &options->plain_fragments },	 { "-noFragmentCompression", &options->plain_fragments },
		{ "-noX", &options->plain_xattrs },	 { "-noXattrCompression", &options->plain_xattrs },
		{ "-no-fragments", &options->no_fragments }, { "-always-use-fragments", &options->always_fragments },
		{ "-tailends", &options->always_fragments }, { "-no-xattrs", &options->no_xattrs },
		{ "-no-exports", &options->no_export },	 { "-nopad", &options->no_padding },
	};

	if (!strcmp(option, "-no-compression")) {
		options->plain_inodes = options->plain_data = options->plain_fragments = options->plain_xattrs = true;
		return true;
	}
	/* The best and slowest of lz4's. */
	if (!strcmp(option, "-Xhc")) {
		options->level = 12;
		return true;
	}
	for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++)
		if (!strcmp(option, flags[i].name)) {
			*flags[i].flag = true;
			return true;
		}
	return false;
}

static int read_options(struct reader *reader)
{
	for (const char *option; (option = word(reader));) {
		bool known;

		if (flag(reader->options, option))
			continue;
		if (with_value(reader, option, &known))
			return -1;
		for (size_t i = 0; !known && i < sizeof(ignored_options) / sizeof(ignored_options[0]); i++) {
			known = !strcmp(option, ignored_options[i].name);
			if (known && ignored_options[i].values && !word(reader))
				return fail_option(reader, option, "needs a value");
		}
		if (!known)
			return fail_option(reader, option, "is no option of mksquashfs that import knows; there are -comp, "
					   "-Xcompression-level, -b, -processors, -no-fragments, -always-use-fragments, -noI, "
					   "-noD, -noF, -noX, -no-xattrs, -no-exports, -mkfs-time and -nopad");
	}
	return 0;
}

static int set_level(struct reader *reader)
{
	struct squashfs_options *options = reader->options;
	int level = options->level;

	if (options->compression == SQUASHFS_LZ4)
		/* Levels of lzo and others are none of lz4's. */
		options->level = level == 12 ? 12 : 1;
	else if (level == LEVEL_UNSET)
		options->level = options->compression == SQUASHFS_GZIP ? 6 : LEVEL_ZSTD;
	else if (options->compression == SQUASHFS_GZIP && level > 9)
		return fail_option(reader, "-Xcompression-level", "of gzip is 1 to 9");
	return 0;
}

unsigned squash_jobs(const struct settings *settings, long usual)
{
	long jobs = settings_number(settings, "ENROOT_MAX_PROCESSORS", usual);

	return jobs < 1 ? 1 : jobs > JOBS_MOST ? JOBS_MOST : (unsigned)jobs;
}

int squash_options(struct squashfs_options *options, const struct settings *settings, int64_t created,
		   struct jail_error *err)
{
	const char *text = settings_get(settings, "ENROOT_SQUASH_OPTIONS"), *epoch = getenv("SOURCE_DATE_EPOCH");
	scoped_free char *copy = text_copy(text, strlen(text));
	struct reader reader = { options, copy, err };

	*options = (struct squashfs_options){ .compression = SQUASHFS_LZ4, .level = LEVEL_UNSET, .block_size = BLOCK_SIZE,
					      .jobs = squash_jobs(settings, sysconf(_SC_NPROCESSORS_ONLN)),
					      .time = created, .newest = INT64_MAX };
	if (epoch && *epoch) {
		options->time = options->newest = number(epoch);
		if (options->time < 0) {
			jail_fail(err, NULL, 0, "\"%.60s\" is no number of seconds since 1970", epoch);
			return jail_error_at(err, NULL, 0, "SOURCE_DATE_EPOCH");
		}
	}
	return read_options(&reader) || set_level(&reader) ? -1 : 0;
}
