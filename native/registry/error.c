/* SPDX-License-Identifier: Apache-2.0 */
/* Fills in the error that functions of the registry client return. error_response.c makes one of a registry's answer.
 * Files of this folder call it. */
#define _GNU_SOURCE
#include "error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "native/base/report.h"

int registry_fail(struct registry_error *err, enum registry_fault fault, const char *format, ...)
{
	va_list args;

	*err = (struct registry_error){ .fault = fault, .retry_after_s = -1 };
	va_start(args, format);
	vsnprintf(err->message, sizeof(err->message), format, args);
	va_end(args);
	return -1;
}

int registry_hint(struct registry_error *err, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(err->hint, sizeof(err->hint), format, args);
	va_end(args);
	return -1;
}

int registry_fail_jail(struct registry_error *err, enum registry_fault fault, const struct jail_error *cause)
{
	char text[1400];

	return registry_fail(err, fault, "%s", jail_error_format(cause, text, sizeof(text)));
}

int registry_report(const struct registry_error *err)
{
	return report_error("%s%s%s", err->message, err->hint[0] ? "\n  next: " : "", err->hint);
}
