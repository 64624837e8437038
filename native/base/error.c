/* SPDX-License-Identifier: Apache-2.0 */
/* Fills in and prints the error that functions of the jail, the containers and the plugins return. Files of this
 * folder, enroot/, other libraries in native/, pyxis/ and spank_jail/ call it. */
#define _GNU_SOURCE
#include "error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *jail_place = "in the jail";

int jail_fail(struct jail_error *err, const char *syscall, int number, const char *format, ...)
{
	va_list args;

	memset(err, 0, sizeof(*err));
	snprintf(err->syscall, sizeof(err->syscall), "%s", syscall ? syscall : "");
	err->number = number;
	va_start(args, format);
	vsnprintf(err->message, sizeof(err->message), format, args);
	va_end(args);
	return -1;
}

int jail_error_at(struct jail_error *err, const char *file, int line, const char *target)
{
	if (file && !err->file[0]) {
		snprintf(err->file, sizeof(err->file), "%s", file);
		err->line = line;
	}
	if (target && !err->target[0])
		snprintf(err->target, sizeof(err->target), "%s", target);
	return -1;
}

const char *jail_errno_name(int number, char scratch[16])
{
	/* Those that the mount API, openat2 and the file system really return. */
	static const struct { int number; const char *name; } names[] = {
		{ EPERM, "EPERM" }, { ENOENT, "ENOENT" }, { EIO, "EIO" }, { ENXIO, "ENXIO" },
		{ EBADF, "EBADF" }, { EAGAIN, "EAGAIN" }, { ENOMEM, "ENOMEM" }, { EACCES, "EACCES" },
		{ EBUSY, "EBUSY" }, { EEXIST, "EEXIST" }, { EXDEV, "EXDEV" }, { ENODEV, "ENODEV" },
		{ ENOTDIR, "ENOTDIR" }, { EISDIR, "EISDIR" }, { EINVAL, "EINVAL" }, { ENFILE, "ENFILE" },
		{ EMFILE, "EMFILE" }, { ENOSPC, "ENOSPC" }, { EROFS, "EROFS" }, { ENOSYS, "ENOSYS" },
		{ ELOOP, "ELOOP" }, { ESTALE, "ESTALE" }, { ENAMETOOLONG, "ENAMETOOLONG" },
		{ EOPNOTSUPP, "EOPNOTSUPP" }, { EDQUOT, "EDQUOT" }, { E2BIG, "E2BIG" },
		{ EINTR, "EINTR" }, { ETIMEDOUT, "ETIMEDOUT" }, { EFBIG, "EFBIG" },
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (names[i].number == number)
			return names[i].name;
	snprintf(scratch, 16, "errno %d", number);
	return scratch;
}

char *jail_one_line(char *text)
{
	for (char *c = text; *c; c++)
		if ((unsigned char)*c < ' ' || *c == 0x7f)
			*c = '?';
	return text;
}

char *jail_error_format(const struct jail_error *err, char *buffer, size_t size)
{
	char place[300] = "", call[200] = "", scratch[16];

	if (err->file[0] && err->line)
		snprintf(place, sizeof(place), "%s:%d: ", err->file, err->line);
	else if (err->file[0])
		snprintf(place, sizeof(place), "%s: ", err->file);
	if (err->syscall[0])
		/* strerrordesc_np, unlike strerror, never opens a message catalogue of the jail. */
		snprintf(call, sizeof(call), "%s: %s (%s): ", err->syscall,
			 strerrordesc_np(err->number) ? strerrordesc_np(err->number) : "unknown error",
			 jail_errno_name(err->number, scratch));
	snprintf(buffer, size, "%s%s%s%s%s", place, err->target, err->target[0] ? ": " : "", call, err->message);
	return jail_one_line(buffer);
}
