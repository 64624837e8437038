/* SPDX-License-Identifier: Apache-2.0 */
/* Counts the nodes to which a message's header asks slurmd to forward it. connections.c calls it. */
#define _GNU_SOURCE
#include "forwarding.h"

#include <stdint.h>
#include <string.h>

#include "spank_jail/guards/common/node_names.h"

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

static struct jail_forward_header refused(void)
{
	return (struct jail_forward_header){ .kind = JAIL_FORWARD_REFUSED };
}

static struct jail_forward_header unfinished(void)
{
	return (struct jail_forward_header){ .kind = JAIL_FORWARD_UNFINISHED };
}

struct jail_forward_header jail_forward_read(const unsigned char *text, size_t size)
{
	if (size < AT_LENGTH)
		return unfinished();
	unsigned nodes = number_at(text + AT_COUNT, 2);
	size_t all = number_at(text, 4);
	if (!nodes)
		return (struct jail_forward_header){ .kind = JAIL_FORWARD_NONE, .length = all };
	if (nodes > JAIL_FORWARD_MOST)
		return refused();
	if (size < AT_NAMES)
		return unfinished();
	size_t length = number_at(text + AT_LENGTH, 4);
	if (!length || length > JAIL_FORWARD_MOST_TEXT)
		return refused();
	if (size < AT_NAMES + length + 4)
		return unfinished();
	const char *names = (const char *)text + AT_NAMES;
	if (memchr(names, '\0', length) != names + length - 1 || jail_forward_count(names) > JAIL_FORWARD_MOST ||
	    number_at(text + AT_NAMES + length, 4) > LONGEST_WAIT_MS)
		return refused();
	return (struct jail_forward_header){ .kind = JAIL_FORWARD_FEW, .nodes = nodes, .names = names, .length = all };
}

unsigned jail_forward_count(const char *names)
{
	return jail_node_names_count(names, JAIL_FORWARD_MOST);
}
