/* SPDX-License-Identifier: Apache-2.0 */
/* The processes of running containers, which `enroot list -f` shows. */
#ifndef ENROOT_PROCESSES_H
#define ENROOT_PROCESSES_H

#include <sys/types.h>

/* A process whose root is that of a container. */
struct process {
	long pid;
	unsigned long long started, used; /* clock ticks: since boot, of processor time */
	char state, comm[64];
	dev_t device;                     /* of its root */
	ino_t inode;
	ino_t mounts, users;              /* its namespaces */
	char *image;                      /* the file that its root was started from; NULL: a created root */
};

struct processes {
	struct process *items;
	size_t n;
};

/* Of each mount namespace with another root than ours the process that began first, as far as one may look. */
void processes_find(struct processes *found);
void processes_free(struct processes *processes);

#endif
