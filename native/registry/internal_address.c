/* SPDX-License-Identifier: Apache-2.0 */
/* Recognises addresses of this machine and of its cloud's metadata service, to which no registry may redirect the client.
 * Files of this folder call it. */
#define _GNU_SOURCE
#include "internal_address.h"

#include <string.h>
#include <strings.h>

#include "native/base/text.h"

bool address_is_loopback(const char *host)
{
	size_t length = strcspn(host, ":");

	if (*host == '[')
		return text_starts(host, "[::1]");
	if (length == 9 && !strncasecmp(host, "localhost", 9))
		return true;
	if (length > 10 && !strncasecmp(host + length - 10, ".localhost", 10))
		return true;
	return text_starts(host, "127.") && strspn(host, "0123456789.") == length;
}

bool address_is_internal(const char *from, const char *to)
{
	static const char *const here[] = { "0.", "169.254.", "[fe80:", "[::]", "[::ffff:", "[fd00:ec2:" };
	const char *host = strstr(to, "://"), *other = strstr(from, "://");

	if (!host || !other || address_is_loopback(other + 3))
		return false;
	host += 3;
	for (size_t i = 0; i < sizeof(here) / sizeof(here[0]); i++)
		if (text_starts(host, here[i]))
			return true;
	return address_is_loopback(host);
}
