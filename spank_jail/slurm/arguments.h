/* The plugin's arguments in plugstack.conf. */
#ifndef JAIL_ARGUMENTS_H
#define JAIL_ARGUMENTS_H

#include "../core/error.h"
#include "../core/level.h"

/* The node's directories that the window shows besides /usr; a Slurm built to /opt needs one. */
#define JAIL_MAX_WINDOW 8

struct jail_arguments {
	const char *root;  /* root=  the directory that becomes "/"; default /mnt/jail/root */
	const char *plan;  /* plan=  default /etc/cellblock/jail.fstab */
	const char *spool; /* spool= SlurmdSpoolDir as it is on the node; NULL: ask Slurm's configuration */
	const char *init;  /* init=  program, at level pid; default JAIL_PID_INIT */
	enum jail_level level; /* level= */
	const char *window[JAIL_MAX_WINDOW + 2]; /* window= may be repeated; "/usr" first, NULL-terminated */
};

/* Reads the arguments; the strings are used in place. -1: an unknown one or a wrong value; the message
 * names it. */
int jail_arguments_parse(int ac, const char *const av[], struct jail_arguments *arguments, struct jail_error *err);

#endif
