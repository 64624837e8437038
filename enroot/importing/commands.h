/* SPDX-License-Identifier: Apache-2.0 */
/* The commands of enroot-image: each gets its arguments, its own name first, and returns the exit status. */
#ifndef IMPORTING_COMMANDS_H
#define IMPORTING_COMMANDS_H

int importing_import(int argc, char **argv);
int importing_load(int argc, char **argv);
int importing_cache_get(int argc, char **argv);
int importing_digest(int argc, char **argv);

/* The limit of open files, raised for this program, as it was: for others that it becomes. */
void importing_restore_limit(void);

/* "enroot cache ls|prune|verify|init"; the arguments begin with "cache". Returns the exit status. */
int cache_command(int argc, char **argv);

#endif
