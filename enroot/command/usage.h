/* SPDX-License-Identifier: Apache-2.0 */
/* Prints the usage text of a command. */
#ifndef ENROOT_USAGE_H
#define ENROOT_USAGE_H

/* Says `what` is wrong with the command line. Returns 1. */
int command_usage(const char *name, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* "enroot NAME --help". Returns 0. */
int command_describe(const char *name);
/* The command help. */
int command_help(int argc, char **argv);

#endif
