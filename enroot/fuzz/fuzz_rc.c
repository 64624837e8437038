/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes the parser of an image's /etc/rc: the directory that it changes to is absolute and part of a line, or there
 * is none. */
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
