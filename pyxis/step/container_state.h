/* SPDX-License-Identifier: Apache-2.0 */
/* The state of a step's container: what the step asked for, and what has been made so far. Kept by
 * the step's first task. */
#ifndef PYXIS_CONTAINER_STATE_H
#define PYXIS_CONTAINER_STATE_H

#include <sys/stat.h>

#include "leftovers.h"
#include "root_identity.h"
#include "runtime.h"

struct pyxis_import;

struct pyxis_container {
	const struct pyxis_request *request;
	const struct pyxis_arguments *arguments;
	struct pyxis_owner owner;
	uint32_t node, nodes;          /* of the step; what the first says stands for all */
	struct text_list places;       /* of the node that it shows beside what the user asks for: lines of fstab */
	int life;                      /* a pipe's end: closed at the other, the container may end */
	void (*say)(const char *line); /* to the user */
	/* Called as soon as there may be something to do after the last task, whoever is killed meanwhile; NULL: nobody cares.
	 * Returns 0 or -1. */
	int (*keep)(struct pyxis_container *container, struct jail_error *err);

	char *name;                    /* by which it is joined */
	char *root;                    /* as enroot knows it, if it is more than a mounted image */
	struct variables environment;  /* enroot's */
	int log;                       /* what the program that ran last said */
	int inherited;                    /* a descriptor for the program that is run next; 0: none */
	const char *heading;           /* of that, to the user */
	off_t shown;                    /* so much of it was passed on as progress */
	char *advice;                  /* what to do after a failure, where the log does not say it */
	bool remapped;                 /* its user is root in it, and nobody outside */
	unsigned unshare;              /* PYXIS_NET...: asked for, here, in the job's environment or in enroot.conf */
	bool joined;                   /* it ran already */
	bool temporary;                /* its root goes with the step */
	struct stat saved;             /* the file that --container-save names, before the step */
	/* The root that the step runs in, for --container-save; in memory that the keeper shares: it is forked before this is known. */
	struct pyxis_root_identity *begun;
	struct pyxis_import *imported; /* what came of the import, for the metrics; NULL: nobody asks */
	bool asked;                    /* the importer, which is to be told when its image is needed no more */
	bool kept;                     /* keep was called: pyxis_container_close is another process's to call */
	pid_t member;                  /* a process in it */
	struct pyxis_leftovers leftovers; /* of earlier jobs, beside its root */
};

/* Of the job; "" where Slurm did not say. */
const char *pyxis_container_cluster(const struct pyxis_container *container);

/* Calls `keep`, once, if pyxis_container_close has anything to do. Returns 0 or -1. */
int pyxis_container_keep(struct pyxis_container *container, struct jail_error *err);

#endif
