/* SPDX-License-Identifier: Apache-2.0 */
/* Converts the error struct of native/layers to the one that enroot's commands print. image_files.c and produce.c
 * call it. */
#define _GNU_SOURCE
#include "layer_error.h"

#include <stdio.h>

int image_error_to_jail(const struct image_error *fault, const char *where, struct jail_error *err)
{
	char place[256];

	if (fault->syscall[0])
		/* Its message is the call's name and error once more. */
		jail_fail(err, fault->syscall, fault->number, "the image cannot be read or written");
	else
		jail_fail(err, NULL, 0, "%s", fault->message);
	snprintf(place, sizeof(place), "%.120s%s%.130s", where ? where : "", where && fault->path[0] ? ": " : "", fault->path);
	return jail_error_at(err, NULL, 0, place);
}
