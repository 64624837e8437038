/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a job's jail options from the command line, #SBATCH lines and environment variables, through Slurm's SPANK
 * functions. plugin.c calls it. */
#define _GNU_SOURCE
#include "option_input.h"

#include <ctype.h>
#include <errno.h>
#include <slurm/slurm.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ticket.h"

#define NAME "spank_jail: "
/* SLURM_: the one prefix that --export=NONE lets through. */
#define TICKET_VARIABLE "SLURM_JAIL_TICKET"
/* By which Slurm itself reads a plugin's option from the environment (spank(7)); "jail" is our plugin_name. */
#define SLURM_VARIABLE "SLURM_SPANK__SLURM_SPANK_OPTION_jail_"

enum option { READONLY, BIND, NO_JAIL, ASKED, N_OPTIONS };

static int read_option(int option, const char *value, int remote);

static struct spank_option table[N_OPTIONS] = {
	{ (char *)"jail-readonly", (char *)"[yes|no]",
	  (char *)"the jail's volume is read-only; /tmp and other mounts are as always", 2, READONLY, read_option },
	{ (char *)"jail-bind", (char *)"SRC:DST[:ro],...",
	  (char *)"mount SRC of the node, which the administrator allows, at DST in the jail (none: nothing)", 1, BIND, read_option },
	{ (char *)"no-jail", (char *)"[yes|no]",
	  (char *)"run on the node itself; for listed users, submitted from outside the jail", 2, NO_JAIL, read_option },
	{ (char *)"jail", (char *)"[yes|no]",
	  (char *)"run in the jail, where the administrator leaves it to users", 2, ASKED, read_option },
};

static const struct jail_arguments *submission_arguments; /* where a job is submitted */
static struct jail_options submitted;       /* the options, there */
static char *values[N_OPTIONS];             /* as text; NULL: not given */
static bool bridged[N_OPTIONS];             /* its SLURM_VARIABLE is our doing */
static char ticket[JAIL_TICKET_SIZE];       /* made by this process, or "" */

static bool is_listed(const struct jail_arguments *arguments, uid_t uid)
{
	for (size_t i = 0; i < arguments->n_no_jail_uids; i++)
		if (arguments->no_jail_uids[i] == uid)
			return true;
	return false;
}

static int check_listed(const struct jail_arguments *arguments, uid_t uid, struct jail_error *err)
{
	if (is_listed(arguments, uid))
		return 0;
	jail_fail(err, NULL, 0, "it is not for uid %u; the administrator allows it with no-jail-uids=%u and no-jail-tickets= "
		  "in plugstack.conf", (unsigned)uid, (unsigned)uid);
	return jail_error_at(err, "--no-jail", 0, NULL);
}

static int parse(int option, const char *value, struct jail_options *options, struct jail_error *err)
{
	if (option == BIND)
		return jail_options_binds(value, options, err);
	return jail_options_switch(table[option].name, value,
				   option == READONLY ? &options->readonly : option == NO_JAIL ? &options->no_jail : &options->asked, err);
}

/* Where a job is submitted: whatever is wrong is told now. */
static int check_one(int option, const char *value, struct jail_error *err)
{
	struct jail_options alone = { 0 };

	if (!submission_arguments)
		return jail_fail(err, NULL, 0, "the plugin's arguments in plugstack.conf are wrong; slurmd's log says how");
	if (parse(option, value, &submitted, err))
		return -1;
	if (option == NO_JAIL)
		return submitted.no_jail ? check_listed(submission_arguments, geteuid(), err) : 0;
	alone = submitted;
	alone.no_jail = false; /* together: once all are read */
	return jail_options_check(&alone, submission_arguments, err);
}

/* The callback of all. On the node a failure would be logged and forgotten by Slurm, so the text is
 * kept there and read later. A later value replaces an earlier one, as Slurm does it. */
static int read_option(int option, const char *value, int remote)
{
	struct jail_error err;
	char line[1400];

	/* How Slurm hands on an option without a value: to the node, and by its variable to a job's steps. */
	if (!value || !strcmp(value, "(null)"))
		value = "";
	if (!remote && check_one(option, value, &err)) {
		slurm_error(NAME "%s", jail_error_format(&err, line, sizeof(line)));
		return -1;
	}
	free(values[option]);
	values[option] = strdup(value);
	return values[option] ? 0 : -1;
}

/* "jail-bind" becomes PREFIX and "jail_bind", or "JAIL_BIND". */
static const char *variable(const char *prefix, int option, bool upper, char name[96])
{
	size_t used = (size_t)snprintf(name, 96, "%s", prefix);

	for (const char *c = table[option].name; *c && used < 95; c++)
		name[used++] = *c == '-' ? '_' : upper ? (char)toupper((unsigned char)*c) : *c;
	name[used] = '\0';
	return name;
}

/* sbatch and salloc cannot be told apart by SPANK. */
static bool is_sbatch(void)
{
	return !strncmp(program_invocation_short_name, "sbatch", 6);
}

/* SRUN_JAIL_BIND and the like go the way of Slurm's own variable for it, so that the command line wins. */
static void read_environment(const char *prefix)
{
	char name[96];

	for (int option = 0; option < N_OPTIONS; option++) {
		const char *value = getenv(variable(prefix, option, true, name));
		if (value)
			bridged[option] = !setenv(variable(SLURM_VARIABLE, option, false, name), value, 1);
	}
}

int jail_input_register(spank_t spank, const struct jail_arguments *arguments, struct jail_error *err)
{
	spank_context_t context = spank_context();

	submission_arguments = arguments;
	for (int option = 0; option < N_OPTIONS; option++)
		if (spank_option_register(spank, &table[option]))
			return jail_fail(err, NULL, 0, "Slurm does not take the option --%s", table[option].name);
	if (context != S_CTX_REMOTE)
		read_environment(context == S_CTX_LOCAL ? "SRUN_" : is_sbatch() ? "SBATCH_" : "SALLOC_");
	return 0;
}

int jail_input_submit(struct jail_error *err)
{
	bool allocates = spank_context() == S_CTX_ALLOCATOR && !is_sbatch();
	char name[96];

	for (int option = 0; option < N_OPTIONS; option++) {
		if (bridged[option])
			unsetenv(variable(SLURM_VARIABLE, option, false, name));
	}
	if (!submission_arguments)
		return 0;
	if (jail_options_check(&submitted, submission_arguments, err))
		return -1;
	/* salloc runs nothing itself: its steps bring their own. */
	if (!submitted.no_jail || allocates)
		return 0;
	if (jail_ticket_make(submission_arguments->tickets, ticket, err))
		return jail_error_at(err, "--no-jail", 0, NULL);
	return setenv(TICKET_VARIABLE, ticket, 1) ? jail_fail(err, "setenv", errno, "cannot hand over the ticket") : 0;
}

void jail_input_submitted(void)
{
	if (ticket[0] && spank_context() == S_CTX_LOCAL)
		jail_ticket_drop(submission_arguments->tickets, ticket);
}

int jail_input_user(spank_t spank, struct jail_user *user, struct jail_error *err)
{
	gid_t *groups = NULL;
	int n = 0;

	if (spank_get_item(spank, S_JOB_UID, &user->uid) || spank_get_item(spank, S_JOB_GID, &user->gid) ||
	    spank_get_item(spank, S_JOB_SUPPLEMENTARY_GIDS, &groups, &n))
		return jail_fail(err, NULL, 0, "Slurm does not say whose step this is");
	user->groups = groups;
	user->n_groups = n > 0 ? (size_t)n : 0;
	return 0;
}

int jail_input_options(struct jail_options *options, struct jail_error *err)
{
	for (int option = 0; option < N_OPTIONS; option++) {
		if (values[option] && parse(option, values[option], options, err))
			return -1;
	}
	return 0;
}

int jail_input_read(spank_t spank, struct jail_options *options, struct jail_error *err)
{
	if (jail_input_user(spank, &options->user, err) ||
	    (submission_arguments && jail_options_check_user(&options->user, submission_arguments, err)))
		return -1;
	return jail_input_options(options, err);
}

/* Who uses a ticket: a step, or a batch script, which may be requeued, and of which an array has many. */
static int name_claimant(spank_t spank, uint32_t job, uint32_t step, char claimant[48], struct jail_error *err)
{
	uint32_t array = 0;

	if (step != SLURM_BATCH_SCRIPT) {
		snprintf(claimant, 48, "%u.%u", job, step);
		return 0;
	}
	if (spank_get_item(spank, S_JOB_ARRAY_ID, &array))
		return jail_fail(err, NULL, 0, "Slurm does not say which array this job is of");
	snprintf(claimant, 48, "%u.batch", array && array != NO_VAL ? array : job);
	return 0;
}

int jail_input_outside(spank_t spank, uint32_t job, uint32_t step, const struct jail_options *options,
		       const struct jail_arguments *arguments, struct jail_error *err)
{
	char name[JAIL_TICKET_SIZE] = "", claimant[48];

	(void)spank_getenv(spank, TICKET_VARIABLE, name, sizeof(name));
	/* No task may hand it on. */
	(void)spank_unsetenv(spank, TICKET_VARIABLE);
	if (jail_options_check(options, arguments, err) || check_listed(arguments, options->user.uid, err) ||
	    name_claimant(spank, job, step, claimant, err))
		return -1;
	if (jail_ticket_claim(arguments->tickets, options->user.uid, name, claimant, err))
		return jail_error_at(err, "--no-jail", 0, NULL);
	return 0;
}
