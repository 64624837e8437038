/* SPDX-License-Identifier: Apache-2.0 */
/* Parses the plugin's arguments in plugstack.conf. */
#ifndef JAIL_ARGUMENTS_H
#define JAIL_ARGUMENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "native/base/error.h"
#include "native/mount/isolation_level.h"
#include "selection.h"

/* The node's directories that the window shows besides /usr; a Slurm built to /opt needs one. */
#define JAIL_MAX_WINDOW 8
/* Debian's policy 9.2.2 and the LAST_UID of adduser: ids below 1000 and from 60001 to 65535 are the system's. */
#define JAIL_USERS "1000-60000,65536-4294967293"

#define JAIL_BCAST "/run/bcast"

/* Lists that an administrator writes by hand on one line. */
#define JAIL_MAX_BIND_ALLOW 16
#define JAIL_MAX_NO_JAIL_UIDS 32

/* bind-allow=PATH[:ro]: what --jail-bind may take from a node. */
struct jail_bind_allow {
	char *path;
	bool readonly;
};

struct jail_arguments {
	const char *root;  /* root=  the directory that becomes "/"; default /mnt/jail/root */
	const char *plan;  /* plan=  default /etc/cellblock/jail.fstab */
	enum jail_level level; /* level= default capabilities */
	const char *spool; /* spool= SlurmdSpoolDir as it is on the node; NULL: ask Slurm's configuration */
	const char *init;  /* init=  program, at level pid; default JAIL_PID_INIT */
	const char *window[JAIL_MAX_WINDOW + 2]; /* window= may be repeated; "/usr" first, NULL-terminated */
	struct jail_bind_allow bind_allow[JAIL_MAX_BIND_ALLOW]; /* bind-allow= may be repeated */
	size_t n_bind_allow;
	uid_t no_jail_uids[JAIL_MAX_NO_JAIL_UIDS]; /* no-jail-uids=0,1000: who may ask for --no-jail */
	size_t n_no_jail_uids;
	unsigned allow; /* allow=  system calls that the filter leaves alone, JAIL_ALLOW_*; may be repeated */
	struct jail_id_list users; /* users=LOW-HIGH[,LOW-HIGH...]  whose jobs run, besides uid 0's; default JAIL_USERS */
	struct jail_selection only; /* which jobs get the jail; default all */
	const char *bcast; /* bcast= where sbcast writes (BcastParameters=DestDir); default JAIL_BCAST */
	const char *tickets; /* no-jail-tickets= directory that no jail shows (ticket.h), or NULL */
};

/* Reads the arguments; the strings are used in place, or kept until jail_arguments_free. -1: an unknown one or
 * a wrong value; the message names it, and nothing is kept. */
int jail_arguments_parse(int ac, const char *const av[], struct jail_arguments *arguments, struct jail_error *err);

/* Whether `uid` may have jobs: it is in users=, or 0. */
bool jail_arguments_is_user(const struct jail_arguments *arguments, uid_t uid);

void jail_arguments_free(struct jail_arguments *arguments);

#endif
