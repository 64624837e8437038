/* SPDX-License-Identifier: Apache-2.0 */
/* What /proc/PID/status tells of a process. */
#ifndef JAIL_PROCESS_STATUS_H
#define JAIL_PROCESS_STATUS_H

#include <stdbool.h>
#include <stddef.h>

/* Reads the beginning of a file as a string. Returns its length; 0: there is none. */
size_t process_read(const char *path, char *text, size_t size);

/* A number of proc_pid_status(5), as "\nUid:\t"; -1: there is none. */
long process_number(const char *status, const char *label);

/* Whether it runs for a user. Root inside has uid 0, but another PID namespace than the node's, of which init is the node's own. */
bool process_is_users(const char *status);

/* Whether the thread, "/proc/PID/task/TID", waits and hears no signal. */
bool process_thread_waits(const char *thread);

#endif
