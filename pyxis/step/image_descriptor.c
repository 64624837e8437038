/* SPDX-License-Identifier: Apache-2.0 */
/* Receives the descriptor and path of an image in the cache from the program that imports it. image.c calls it. */
#define _GNU_SOURCE
#include "image_descriptor.h"

#include <errno.h>
#include <limits.h>
#include <sys/socket.h>
#include <unistd.h>

#include "native/base/text.h"
#include "native/base/descriptor.h"
#include "native/base/scoped.h"

int pyxis_handing_begin(struct pyxis_handing *handing, struct jail_error *err)
{
	int ends[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends))
		return jail_fail(err, "socketpair", errno, "cannot begin the import");
	*handing = (struct pyxis_handing){ ends[0], ends[1] };
	return 0;
}

char *pyxis_handing_take(struct pyxis_handing *handing, int *held)
{
	char path[PATH_MAX];
	ssize_t got = jail_descriptor_receive(handing->ours, held, path, sizeof(path));

	return *held < 0 ? NULL : text_copy(path, (size_t)got);
}

void pyxis_handing_end(struct pyxis_handing *handing)
{
	jail_close(&handing->ours);
	jail_close(&handing->theirs);
}
