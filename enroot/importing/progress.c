/* SPDX-License-Identifier: Apache-2.0 */
/* Prints how far an import is. Files of this folder call it. */
#define _GNU_SOURCE
#include "progress.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "native/base/clock.h"
#include "native/base/report.h"

/* For logs: most imports are over before the first line. */
#define LINE_EVERY (5 * NS_PER_S)
#define TERMINAL_EVERY (NS_PER_S / 5)

int64_t progress_now_ns(void)
{
	return clock_ns(CLOCK_MONOTONIC);
}

char *progress_bytes(unsigned long long bytes, char text[32])
{
	static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB" };
	double value = (double)bytes;
	unsigned unit = 0;

	for (; value >= 1024 && unit + 1 < sizeof(units) / sizeof(units[0]); unit++)
		value /= 1024;
	snprintf(text, 32, unit ? "%.1f %s" : "%.0f %s", value, units[unit]);
	return text;
}

void progress_begin(struct progress *progress, unsigned long long total)
{
	int64_t now = progress_now_ns();

	*progress = (struct progress){ .total = total, .began_ns = now, .told_ns = now, .terminal = report_is_terminal() };
}

void progress_tell(struct progress *progress, unsigned long long done)
{
	int64_t now = progress_now_ns();
	double seconds = (double)(now - progress->began_ns) / (double)NS_PER_S, rate = (double)done / seconds;
	char text[256], bytes[32], total[32], each[32];
	int length;

	if (now - progress->told_ns < (progress->terminal ? TERMINAL_EVERY : LINE_EVERY))
		return;
	progress->told_ns = now;
	progress_bytes(done, bytes);
	progress_bytes((unsigned long long)rate, each);
	if (progress->total && done <= progress->total && done)
		length = snprintf(text, sizeof(text), "%s of %s (%.0f%%), %s/s, %.0f s left", bytes,
				  progress_bytes(progress->total, total), 100.0 * (double)done / (double)progress->total, each,
				  (double)(progress->total - done) / rate);
	else
		length = snprintf(text, sizeof(text), "%s, %s/s", bytes, each);
	if (!progress->terminal) {
		report_info("%s", text);
		return;
	}
	progress->shown = true;
	dprintf(STDERR_FILENO, "\r\033[K%.*s", length, text);
}

void progress_end(struct progress *progress)
{
	if (progress->shown)
		dprintf(STDERR_FILENO, "\r\033[K");
	progress->shown = false;
}
