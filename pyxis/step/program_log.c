/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps in memory what enroot and other programs printed, to show it if they fail. container.c, container_run.c,
 * image.c and save.c call it. */
#define _GNU_SOURCE
#include "program_log.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "native/base/text.h"

#define MAX_TEXT (1024 * 1024)

int pyxis_log_open(struct jail_error *err)
{
	int log = memfd_create("enroot.log", MFD_CLOEXEC);

	return log < 0 ? jail_fail(err, "memfd_create", errno, "cannot keep what enroot says") : log;
}

int pyxis_log_clear(int log, struct jail_error *err)
{
	/* Its writers have the place at which they write in common with the caller. */
	return ftruncate(log, 0) || lseek(log, 0, SEEK_SET) ? jail_fail(err, "ftruncate", errno, "cannot empty the log") : 0;
}

char *pyxis_log_text(int log, off_t from, off_t *end)
{
	struct text_buffer text = { 0 };
	char part[4096];
	struct stat st;
	ssize_t got;

	if (log < 0 || fstat(log, &st) || st.st_size <= from)
		return NULL;
	if (st.st_size - from > MAX_TEXT)
		from = st.st_size - MAX_TEXT;
	/* Not read(2): that would move the place at which the program writes. */
	while (from < st.st_size && (got = pread(log, part, sizeof(part), from)) > 0) {
		text_append(&text, part, (size_t)got);
		from += got;
	}
	if (end)
		*end = from;
	return text.text;
}

static const char *without_level(const char *line)
{
	static const char *const levels[] = { "[INFO] ", "[WARN] ", "[ERROR] " };

	for (size_t i = 0; i < sizeof(levels) / sizeof(levels[0]); i++)
		if (text_starts(line, levels[i]))
			return line + strlen(levels[i]);
	return line;
}

static const char *next_line(const char *line)
{
	line += strcspn(line, "\n");
	return line + (*line == '\n');
}

char *pyxis_log_reason(const char *text)
{
	const char *found = NULL, *end;

	for (const char *line = text; *line; line = next_line(line))
		if (text_starts(line, "[ERROR] "))
			found = without_level(line);
	if (!found)
		return NULL;
	/* Where was looked, and what to do, stand below it, indented. */
	for (end = next_line(found); *end == ' ';)
		end = next_line(end);
	return text_copy(found, (size_t)(end - found) - (end[-1] == '\n'));
}

char *pyxis_log_latest(const char *text)
{
	const char *end = strrchr(text, '\n'), *line;

	if (!end)
		return NULL;
	for (line = end; line > text && line[-1] != '\n';)
		line--;
	line = without_level(line);
	return line < end ? text_copy(line, (size_t)(end - line)) : NULL;
}
