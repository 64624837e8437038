/* SPDX-License-Identifier: Apache-2.0 */
/* Fills in the error that functions that read and write images return. Files of this folder, enroot/ and other
 * libraries in native/ call it. */
#define _GNU_SOURCE
#include "error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void begin_fault(struct image_error *err, enum image_fault fault, const char *path)
{
	memset(err, 0, sizeof(*err));
	err->fault = fault;
	snprintf(err->path, sizeof(err->path), "%s", path ? path : "");
}

int image_fail(struct image_error *err, enum image_fault fault, const char *path, const char *format, ...)
{
	va_list args;

	begin_fault(err, fault, path);
	va_start(args, format);
	vsnprintf(err->message, sizeof(err->message), format, args);
	va_end(args);
	return -1;
}

int image_fail_call(struct image_error *err, const char *path, const char *syscall, int number)
{
	const char *text = strerrordesc_np(number);

	begin_fault(err, IMAGE_FAULT_SYSTEM, path);
	snprintf(err->syscall, sizeof(err->syscall), "%s", syscall);
	err->number = number;
	snprintf(err->message, sizeof(err->message), "%s: %s", syscall, text ? text : "unknown error");
	return -1;
}

int image_fail_memory(struct image_error *err)
{
	/* Large tables are in a file (spill.h). */
	if (errno == ENOSPC || errno == EDQUOT || errno == EFBIG)
		return image_fail_call(err, "", "posix_fallocate", errno);
	return image_fail_call(err, "", "malloc", ENOMEM);
}
