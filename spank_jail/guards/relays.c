/* SPDX-License-Identifier: Apache-2.0 */
/* Reads to how many nodes a message is to be passed on. connections.c calls it. */
#define _GNU_SOURCE
#include "relays.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define TOO_MANY (JAIL_RELAYS_MOST + 1)
/* Numbers in brackets: Slurm's own limit for a range is 2^16. */
#define MOST_DIGITS 9
/* Where the fields are, from the message's length on: version, flags, type, length of the body. */
#define AT_COUNT (4 + 2 + 2 + 2 + 4)
#define AT_LENGTH (AT_COUNT + 2)
#define AT_NAMES (AT_LENGTH + 4)
/* Milliseconds that slurmd is to wait for an answer. Slurm asks for some times MessageTimeout. */
#define LONGEST_WAIT_MS 1800000

static uint32_t number_at(const unsigned char *text, size_t bytes)
{
	uint32_t number = 0;

	for (size_t i = 0; i < bytes; i++)
		number = number << 8 | text[i];
	return number;
}

static struct jail_relay_header refused(void)
{
	return (struct jail_relay_header){ .kind = JAIL_RELAY_REFUSED };
}

static struct jail_relay_header unfinished(void)
{
	return (struct jail_relay_header){ .kind = JAIL_RELAY_UNFINISHED };
}

struct jail_relay_header jail_relay_read(const unsigned char *text, size_t size)
{
	if (size < AT_LENGTH)
		return unfinished();
	unsigned nodes = number_at(text + AT_COUNT, 2);
	size_t all = number_at(text, 4);
	if (!nodes)
		return (struct jail_relay_header){ .kind = JAIL_RELAY_NONE, .length = all };
	if (nodes > JAIL_RELAYS_MOST)
		return refused();
	if (size < AT_NAMES)
		return unfinished();
	size_t length = number_at(text + AT_LENGTH, 4);
	if (!length || length > JAIL_RELAYS_MOST_TEXT)
		return refused();
	if (size < AT_NAMES + length + 4)
		return unfinished();
	const char *names = (const char *)text + AT_NAMES;
	if (memchr(names, '\0', length) != names + length - 1 || jail_relay_count(names) > JAIL_RELAYS_MOST ||
	    number_at(text + AT_NAMES + length, 4) > LONGEST_WAIT_MS)
		return refused();
	return (struct jail_relay_header){ .kind = JAIL_RELAY_FEW, .nodes = nodes, .names = names, .length = all };
}

static bool read_number(const char **text, unsigned long *number)
{
	size_t digits = strspn(*text, "0123456789");

	if (!digits || digits > MOST_DIGITS)
		return false;
	*number = strtoul(*text, NULL, 10);
	*text += digits;
	return true;
}

/* "1-3,7]": how many; behind the bracket. 0: it is none. */
static unsigned long count_in_brackets(const char **text)
{
	unsigned long all = 0, first, last;

	do {
		if (!read_number(text, &first))
			return 0;
		last = first;
		if (**text == '-' && (++*text, !read_number(text, &last)))
			return 0;
		if (last < first)
			return 0;
		all += last - first + 1;
	} while (all <= JAIL_RELAYS_MOST && *(*text)++ == ',');
	return all > JAIL_RELAYS_MOST || (*text)[-1] == ']' ? all : 0;
}

unsigned jail_relay_count(const char *names)
{
	unsigned long all = 0, one = 1;

	for (; *names; names++) {
		if (*names == ',') {
			all += one;
			one = 1;
		} else if (*names == '[') {
			names++;
			one *= count_in_brackets(&names);
			if (!one)
				return TOO_MANY;
			names--;
		}
		if (all + one > JAIL_RELAYS_MOST)
			return TOO_MANY;
	}
	return (unsigned)(all + one);
}
