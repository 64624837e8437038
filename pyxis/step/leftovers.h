/* SPDX-License-Identifier: Apache-2.0 */
/* Container roots and files that earlier jobs of the user left: their cleanup process was killed, and no epilog ran
 * because the node went down.
 *
 * Homes are shared by nodes and clusters, so another node may have to remove them. What bears this cluster's label
 * (root_label.h) is removed as soon as slurmctld says that its job is over.
 */
#ifndef PYXIS_LEFTOVERS_H
#define PYXIS_LEFTOVERS_H

#include <stdint.h>

#include "native/base/text.h"

/* Each is a question to slurmctld: what there is more of, later steps remove. */
#define PYXIS_LEFTOVER_JOBS 4

struct pyxis_leftovers {
	uint32_t jobs[PYXIS_LEFTOVER_JOBS];
	unsigned n;
	char *folder;
	struct text_list roots, files; /* their names there */
};

/* Looks for those of `cluster` ("": none) beside `root`, but for those of the job itself. */
void pyxis_leftovers_find(struct pyxis_leftovers *leftovers, const char *root, const char *cluster, uint32_t own);

/* Removes files of jobs that are over (bit I of `over` is jobs[I]), and forgets the roots of all others. */
void pyxis_leftovers_drop(struct pyxis_leftovers *leftovers, unsigned over);

void pyxis_leftovers_free(struct pyxis_leftovers *leftovers);

#endif
