/* SPDX-License-Identifier: Apache-2.0 */
/* Messages that slurmd is to pass on to other nodes: the header says to which. slurmd does so before it knows who sent it. */
#ifndef JAIL_RELAYS_H
#define JAIL_RELAYS_H

#include <stddef.h>

/* Names of nodes in one message, at most: with a TreeWidth of 16 a cluster of 16,000 nodes has as many. */
#define JAIL_RELAYS_MOST 1024
/* Characters in which they are written. */
#define JAIL_RELAYS_MOST_TEXT 16384

enum jail_relay {
	JAIL_RELAY_UNFINISHED, /* the beginning that is there does not say it yet */
	JAIL_RELAY_NONE,       /* it is for this node alone */
	JAIL_RELAY_FEW,
	JAIL_RELAY_REFUSED,
};

struct jail_relay_header {
	enum jail_relay kind;
	unsigned nodes;	     /* answers that slurmd will wait for */
	size_t length;	     /* of the message, for which slurmd makes room; unless it is unfinished */
	const char *names;   /* within what was read */
};

/* Reads the beginning of a message: its length and Slurm's header, as of all releases from 20.11 on. */
struct jail_relay_header jail_relay_read(const unsigned char *text, size_t size);

/* How many names a list has, as "a[1-3,7],b"; more than JAIL_RELAYS_MOST: as many, or it cannot be read. */
unsigned jail_relay_count(const char *names);

#endif
