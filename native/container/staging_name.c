/* SPDX-License-Identifier: Apache-2.0 */
/* Recognises the hidden names that container roots have while they are being made or removed. enroot/command and
 * pyxis/step call it. */
#define _GNU_SOURCE
#include "staging_name.h"

#include <string.h>

#include "native/base/text.h"

#define DIGITS "0123456789"

bool staging_is_name(const char *name)
{
	if (!text_starts(name, STAGING_PREFIX))
		return false;
	name += strlen(STAGING_PREFIX);
	size_t pid = strspn(name, DIGITS), number = name[pid] == '-' ? strspn(name + pid + 1, DIGITS) : 0;
	return pid && number && !name[pid + 1 + number];
}
