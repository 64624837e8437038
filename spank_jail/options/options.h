/* SPDX-License-Identifier: Apache-2.0 */
/* A job's jail options: what they say, what the administrator allows, and how they change the mount plan.
 *
 * It knows nothing of Slurm: option_input.h gets the options from there. The check where a job is submitted is for
 * the user's sake; the node checks again, and its answer counts.
 */
#ifndef JAIL_OPTIONS_H
#define JAIL_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>

#include "native/base/error.h"
#include "native/mount/plan.h"
#include "arguments.h"

#define JAIL_MAX_BINDS 16

struct jail_bind {
	char *source; /* path of the node */
	char *target; /* path in the jail */
	bool readonly;
};

struct jail_options {
	bool readonly;
	bool no_jail;
	bool asked;  /* --jail */
	bool nosuid; /* set on the node: no set-user-ID program or file capability counts */
	size_t n_binds;
	struct jail_bind binds[JAIL_MAX_BINDS];
	struct jail_user user; /* the job's; set on the node */
};

/* The value of a switch: "", yes, 1 and true, or no, 0 and false. `name` is used in the message. */
int jail_options_switch(const char *name, const char *value, bool *on, struct jail_error *err);

/* Replaces the binds by those of `value`, "SRC:DST[:ro|:rw][,SRC:DST...]" or "none". -1: the options have
 * no binds, and the message quotes what is wrong. */
int jail_options_binds(const char *value, struct jail_options *options, struct jail_error *err);

/* Whether the administrator allows the binds, as far as their text tells. Returns 0 or -1. */
int jail_options_check(const struct jail_options *options, const struct jail_arguments *arguments,
		       struct jail_error *err);

/* Checks, also that the plan keeps the tickets hidden, and appends the binds to the plan as it was read.
 * `spool` is slurmd's spool directory, which is mounted after the plan. `options` must outlive the plan.
 * Returns 0 or -1. */
int jail_options_apply(const struct jail_options *options, const struct jail_arguments *arguments, const char *spool,
		       struct jail_plan *plan, struct jail_error *err);

/* Whether a job of `user` may run: -1 for a uid, or a primary group, of the system's. Root in the jail can become any of
 * them, and files of the node are theirs. */
int jail_options_check_user(const struct jail_user *user, const struct jail_arguments *arguments, struct jail_error *err);

/* Whether an error is one of the job's options, the user's to repair, and no fault of the node. */
bool jail_options_at_fault(const struct jail_error *err);

void jail_options_free(struct jail_options *options);

#endif
