/* SPDX-License-Identifier: Apache-2.0 */
/* Looks for hardware faults in what the kernel has logged since the last check. node_checks.c calls it.
 *
 * Users choose some words in the kernel's log: the name of a program and of a file in the line of a segmentation
 * fault. So lines must match from their start, and hardware faults must have the right log level, too.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "native/base/clock.h"
#include "native/base/scoped.h"
#include "native/base/text.h"

/* A record; include/linux/printk.h: CONSOLE_EXT_LOG_MAX. */
#define RECORD_SIZE 8192
/* What the kernel logs itself, not what was written to /dev/kmsg: facility 0. */
#define FACILITY(priority) ((priority) >> 3)

/* Of the level: 0 emergencies, 3 errors, 4 warnings, 6 information, that of a segmentation fault among it. */
#define LEVEL(priority) ((priority) & 7)

struct patterns {
	const char *lines; /* regex(7), with | between them */
	unsigned level;    /* the least urgent */
};

#define DEVICE "[[:alnum:]_!/-]+"

static const struct patterns error_patterns = {
	"^mce: Uncorrected hardware memory error|"
	"^mce: \\[Hardware Error\\]: CPU [0-9]+: Machine Check Exception|"
	"^Memory failure: 0x[0-9a-f]+: |"
	"^EDAC MC[0-9]+: [0-9]+ UE (memory|page) |"
	"^(blk_update_request: )?I/O error, dev " DEVICE ", sector |"
	"^Buffer I/O error on dev " DEVICE ", logical block |"
	"^EXT4-fs error \\(device " DEVICE "\\)|"
	"^EXT4-fs \\(" DEVICE "\\): Remounting filesystem read-only|"
	"^XFS \\(" DEVICE "\\): (Filesystem has been shut down|Metadata corruption detected)|"
	"^BTRFS error \\(device " DEVICE "[^)]*\\).*forced readonly",
	4,
};

static const struct patterns warnings = {
	"^mce: \\[Hardware Error\\]: Machine check events logged|"
	"^EDAC MC[0-9]+: [0-9]+ CE memory |"
	"^INFO: task .* blocked for more than |"
	/* Of a job that takes more than its own the kernel says "Memory cgroup out of memory". */
	"^Out of memory: Killed process ",
	6,
};

/* Of NVIDIA's driver, by its catalogue of Xid errors. Most others are programs' own faults (13, 31, 43, 45, 68, 69), and no matter of the
 * node's. The line is "NVRM: Xid (PCI:0000:3b:00): 79, pid=17, ...". */
#define XID(numbers) "^NVRM: Xid \\(PCI:[[:xdigit:]:.]+\\): (" numbers "),"

static const struct patterns xid_errors = {
	XID("48|"	/* two wrong bits in a word of memory */
	    "62|"	/* its own controller has halted */
	    "64|"	/* a row or page could not be replaced */
	    "74|"	/* NVLink */
	    "79|"	/* it is off the bus */
	    "95|"	/* an error of memory that others than one program have seen */
	    "119|120|"	/* its system processor does not answer, or has failed */
	    "140"	/* memory that cannot be corrected */
	    ),
	6,
};

static const struct patterns xid_warnings = {
	XID("63|"	/* a row or page is to be replaced at the next reset */
	    "92|"	/* many corrected errors */
	    "94"	/* an error of memory that ended one program */
	    ),
	6,
};

/* Nobody's disk. */
static bool is_removable(const char *text)
{
	return strstr(text, "dev loop") || strstr(text, "dev fd") || strstr(text, "dev sr");
}

struct look {
	regex_t lines;
	unsigned level;                /* the least urgent of those */
	unsigned long long after;      /* the number of the last record that was looked at */
	unsigned long long not_before; /* microseconds since the machine started */
	unsigned long long last;
	bool any;
	char found[200]; /* the first that matches */
};

/* PRIORITY,NUMBER,MICROSECONDS,FLAGS;TEXT */
static void look_at_record(struct look *look, char *record)
{
	unsigned priority;
	unsigned long long number, when;
	char *text = strchr(record, ';');

	record[strcspn(record, "\n")] = 0;
	if (!text || sscanf(record, "%u,%llu,%llu,", &priority, &number, &when) != 3)
		return;
	look->any = true;
	look->last = number;
	if (number <= look->after || when < look->not_before || FACILITY(priority) || LEVEL(priority) > look->level || look->found[0])
		return;
	if (!regexec(&look->lines, text + 1, 0, NULL, 0) && !is_removable(text + 1))
		snprintf(look->found, sizeof(look->found), "%s", text + 1);
}

/* Each read of /dev/kmsg is one record. */
static int read_device(struct look *look, int fd)
{
	char record[RECORD_SIZE + 1];

	for (;;) {
		ssize_t length = read(fd, record, RECORD_SIZE);
		if (length > 0) {
			record[length] = 0;
			look_at_record(look, record);
		} else if (length == 0 || errno == EAGAIN) {
			return 0;
		} else if (errno != EPIPE && errno != EINTR) { /* EPIPE: it was overwritten meanwhile */
			return -1;
		}
	}
}

static int read_source(struct look *look, const char *source)
{
	scoped_fd fd = open(source, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	struct stat st;
	char *line;

	if (fd < 0 || fstat(fd, &st))
		return -1;
	if (!S_ISREG(st.st_mode))
		return read_device(look, fd);
	scoped_free char *text = check_read(source);
	for (char *rest = text; rest && (line = strsep(&rest, "\n"));)
		look_at_record(look, line);
	return text ? 0 : -1;
}

static unsigned long long uptime_us(void)
{
	return (unsigned long long)clock_ns(CLOCK_MONOTONIC) / 1000;
}

/* What was found lately: LAST WHEN TEXT. */
static void remember(const struct look *look, long long when, const char *text)
{
	scoped_free char *line = text_format("%llu %lld %s", look->last, when, text);

	check_remember("log", line);
}

static int search(const struct patterns *patterns, unsigned hold_s)
{
	const char *source = check_word("source", "/dev/kmsg");
	scoped_free char *before = check_recall("log");
	struct look look = { .level = patterns->level };
	unsigned long long back = check_number("back", 600) * 1000000, up = uptime_us();
	long long when = 0, now = (long long)time(NULL);
	char old[200] = "";
	int end = 0;

	if (!before || sscanf(before, "%llu %lld %n", &look.after, &when, &end) < 2 || !end)
		look.not_before = up > back ? up - back : 0;
	else
		snprintf(old, sizeof(old), "%s", before + end);
	look.last = look.after;
	if (regcomp(&look.lines, patterns->lines, REG_EXTENDED | REG_NOSUB))
		return check_could_not_run("the patterns cannot be read");
	if (read_source(&look, source))
		return check_could_not_run("%s: %s", source, strerrordesc_np(errno));
	if (!look.any)
		return check_could_not_run("%s has no record of the kernel's", source);
	if (look.found[0]) {
		remember(&look, now, look.found);
		return check_failed("the kernel says: %s", look.found);
	}
	remember(&look, when, old);
	if (old[0] && now - when < (long long)check_number("hold", hold_s))
		return check_failed("the kernel said: %s", old);
	return CHECK_PASSED;
}

int check_kernel_errors(void)
{
	return search(&error_patterns, 0);
}

int check_kernel_warnings(void)
{
	return search(&warnings, 3600);
}

int check_gpu_xid(void)
{
	return search(&xid_errors, 0);
}

int check_gpu_xid_warnings(void)
{
	return search(&xid_warnings, 86400);
}
