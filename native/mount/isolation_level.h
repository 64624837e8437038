/* SPDX-License-Identifier: Apache-2.0 */
/* The levels of isolation: how far a process in the jail is cut off from the node. Each includes those before it. */
#ifndef JAIL_LEVEL_H
#define JAIL_LEVEL_H

enum jail_level {
	JAIL_LEVEL_FILESYSTEM,   /* the tree alone; root inside is root of the node */
	JAIL_LEVEL_CAPABILITIES, /* cut capabilities, system call filter, masked /proc and /sys */
	JAIL_LEVEL_PID,          /* and a PID namespace */
};

/* 0 and `*level`, or -1 when there is no level of that name. */
int jail_level_parse(const char *name, enum jail_level *level);

/* "filesystem", "capabilities", "pid" */
const char *jail_level_name(enum jail_level level);

#endif
