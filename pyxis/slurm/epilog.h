/* SPDX-License-Identifier: Apache-2.0 */
/* Removes at a job's end what it left on the node: containers that live as long as their job, and files of steps that
 * were killed.
 *
 * slurmd runs the epilog as root, outside of any jail. So it enters the jail first, by jail-enter, and as the user.
 */
#ifndef PYXIS_EPILOG_H
#define PYXIS_EPILOG_H

#include <stdbool.h>

#include "pyxis/options/arguments.h"
#include "pyxis/step/runtime.h"

/* slurmstepd, before a step's container is made: notes that there may be something. As the user or as root. Returns a
 * descriptor that marks the step as present until it is closed, which is outside of any jail, or -1: the log says why. */
int pyxis_epilog_note(const struct pyxis_arguments *arguments, const struct pyxis_owner *owner);

/* The epilog of a job: removes it, if that was noted. Returns 0, or -1 with `err`. */
int pyxis_epilog_run(const struct pyxis_arguments *arguments, uint32_t job, uint32_t uid, struct jail_error *err);

/* The same for all jobs of which there are notes and no steps here, but for `own`, that `is_over` confirms: their epilog was
 * killed, or slurmd was while they ended. */
void pyxis_epilog_sweep(const struct pyxis_arguments *arguments, uint32_t own, bool (*is_over)(uint32_t job));

#endif
