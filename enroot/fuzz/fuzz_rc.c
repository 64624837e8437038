/* SPDX-License-Identifier: Apache-2.0 */
/* Any text as an image's /etc/rc: the directory that it enters is absolute and a line's, or there is none. */
#define _GNU_SOURCE
#include <string.h>

#include "enroot/container/hold_container.h"
#include "native/base/scoped.h"
#include "native/testing/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	scoped_free char *text = strndup((const char *)data, size);

	MUST(text);
	scoped_free char *directory = hold_directory(text);
	MUST(!directory || (*directory == '/' && !strchr(directory, '\n')));
	return 0;
}
