/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a job's jail options from the command line, #SBATCH lines and environment variables, through Slurm's SPANK
 * functions.
 *
 * srun, sbatch and salloc check them, so that a mistake is told at once. Slurm brings them to the node as text, where
 * they are read and checked again.
 */
#ifndef JAIL_OPTION_INPUT_H
#define JAIL_OPTION_INPUT_H

#include <slurm/spank.h>
#include <stdint.h>

#include "native/base/error.h"
#include "arguments.h"
#include "options.h"

/* In slurm_spank_init of srun, sbatch, salloc and slurmstepd. `arguments`: to check by where a job is
 * submitted; NULL when plugstack.conf is wrong, which makes any option an error there. Returns 0 or -1. */
int jail_input_register(spank_t spank, const struct jail_arguments *arguments, struct jail_error *err);

/* In slurm_spank_init_post_opt of srun, sbatch and salloc: everything is read, and a job for --no-jail
 * gets its ticket. Returns 0 or -1. */
int jail_input_submit(struct jail_error *err);

/* In slurm_spank_exit of srun: the step is over, its ticket serves nobody any more. */
void jail_input_submitted(void);

/* On the node, in slurm_spank_init_post_opt: the options of the step, and who runs it. -1: they are
 * wrong; nothing is checked against the arguments yet. */
int jail_input_read(spank_t spank, struct jail_options *options, struct jail_error *err);

/* Whose step it is, on the node, whoever that is. The groups are Slurm's. Returns 0 or -1. */
int jail_input_user(spank_t spank, struct jail_user *user, struct jail_error *err);

/* The options alone, on the node. -1: they are wrong. */
int jail_input_options(struct jail_options *options, struct jail_error *err);

/* Decides whether a step with --no-jail may run outside. 0: it may; -1: it must not run at all. */
int jail_input_outside(spank_t spank, uint32_t job, uint32_t step, const struct jail_options *options,
		       const struct jail_arguments *arguments, struct jail_error *err);

#endif
