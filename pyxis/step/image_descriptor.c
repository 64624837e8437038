/* SPDX-License-Identifier: Apache-2.0 */
/* Receives an image in the cache from the program that imports it, as a path and an open
 * descriptor. image.c calls it. */
#define _GNU_SOURCE
#include "image_descriptor.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "native/base/text.h"
#include "native/base/descriptor.h"
#include "native/base/scoped.h"

int pyxis_image_descriptor_begin(struct pyxis_image_descriptor *descriptor, struct jail_error *err)
{
	int ends[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends))
		return jail_fail(err, "socketpair", errno, "cannot begin the import");
	*descriptor = (struct pyxis_image_descriptor){ ends[0], ends[1] };
	return 0;
}

/* The path, and behind a zero a word more, which an enroot of before did not say. */
char *pyxis_image_descriptor_receive(struct pyxis_image_descriptor *descriptor, int *held, bool *found)
{
	char message[PATH_MAX + sizeof(ENROOT_IMAGE_FOUND)];
	ssize_t got = jail_descriptor_receive(descriptor->ours, held, message, sizeof(message));
	size_t length = got > 0 ? strnlen(message, (size_t)got) : 0;
	const char *word = message + length + 1;

	*found = got == (ssize_t)(length + 1 + strlen(ENROOT_IMAGE_FOUND)) && !memcmp(word, ENROOT_IMAGE_FOUND, strlen(ENROOT_IMAGE_FOUND));
	return *held < 0 ? NULL : text_copy(message, length);
}

void pyxis_image_descriptor_end(struct pyxis_image_descriptor *descriptor)
{
	jail_close(&descriptor->ours);
	jail_close(&descriptor->theirs);
}
