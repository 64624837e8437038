/* SPDX-License-Identifier: Apache-2.0 */
/* Counts the nodes to which a message's header asks slurmd to forward it. slurmd does so before
 * it authenticates the sender. */
#ifndef JAIL_FORWARDING_H
#define JAIL_FORWARDING_H

#include <stddef.h>

/* Names of nodes in one message, at most: with a TreeWidth of 16 a cluster of 16,000 nodes has as many. */
#define JAIL_FORWARD_MOST 1024
/* Characters in which they are written. */
#define JAIL_FORWARD_MOST_TEXT 16384

enum jail_forward {
	JAIL_FORWARD_UNFINISHED, /* the beginning that is there does not say it yet */
	JAIL_FORWARD_NONE,       /* it is for this node alone */
	JAIL_FORWARD_FEW,
	JAIL_FORWARD_REFUSED,
};

struct jail_forward_header {
	enum jail_forward kind;
	unsigned nodes;	     /* answers that slurmd will wait for */
	size_t length;	     /* of the message, for which slurmd makes room; unless it is unfinished */
	const char *names;   /* within what was read */
};

/* Reads the beginning of a message: its length and Slurm's header, as of all releases from 20.11 on. */
struct jail_forward_header jail_forward_read(const unsigned char *text, size_t size);

/* How many names a list has, as "a[1-3,7],b"; more than JAIL_FORWARD_MOST: as many, or it cannot be read. */
unsigned jail_forward_count(const char *names);

#endif
