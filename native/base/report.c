/* SPDX-License-Identifier: Apache-2.0 */
/* Prints [INFO], [WARN] and [ERROR] lines. enroot/ and other libraries in native/ call it. */
#define _GNU_SOURCE
#include "report.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static enum report_level shown = REPORT_ALL;

int report_is_terminal(void)
{
	return isatty(STDERR_FILENO);
}

void report_level(enum report_level level)
{
	shown = level;
}

/* One write for a line: others write to the same terminal or log. */
static void line(const char *level, const char *colour, const char *format, va_list args)
{
	char text[4096];
	int terminal = report_is_terminal();
	int used = snprintf(text, sizeof(text), "%s[%s]%s ", terminal ? colour : "", level, terminal ? "\033[0m" : "");
	int more = vsnprintf(text + used, sizeof(text) - (size_t)used - 1, format, args);

	char *message = text + used;

	used += more < (int)sizeof(text) - used - 1 ? more : (int)sizeof(text) - used - 2;
	/* Names in images and words of registries may hold what moves a terminal's cursor. Lines of our own stay. */
	for (; *message; message++)
		if (((unsigned char)*message < ' ' && *message != '\n' && *message != '\t') || *message == 0x7f)
			*message = '?';
	text[used++] = '\n';
	if (write(STDERR_FILENO, text, (size_t)used) < 0)
		return; /* nobody listens */
}

#define LINE(level, colour)                         \
	va_list args;                               \
	va_start(args, format);                     \
	line(level, "\033[" colour "m", format, args); \
	va_end(args)

void report_info(const char *format, ...)
{
	if (shown < REPORT_ALL)
		return;
	LINE("INFO", "1;34");
}

void report_warning(const char *format, ...)
{
	if (shown < REPORT_WARNINGS)
		return;
	LINE("WARN", "1;33");
}

int report_error(const char *format, ...)
{
	LINE("ERROR", "1;31");
	return 1;
}

int report_failure(const struct jail_error *err)
{
	char text[1400];

	return report_error("%s", jail_error_format(err, text, sizeof(text)));
}

void report_warn(const struct jail_error *err)
{
	char text[1400];

	report_warning("%s", jail_error_format(err, text, sizeof(text)));
}
