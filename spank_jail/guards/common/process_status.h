/* SPDX-License-Identifier: Apache-2.0 */
/* Reads from /proc/PID/status what state a process is in, and whose it is. */
#ifndef JAIL_PROCESS_STATUS_H
#define JAIL_PROCESS_STATUS_H

#include <stdbool.h>
#include <stddef.h>

/* Reads the beginning of a file as a string. Returns its length; 0: there is none. */
size_t process_read(const char *path, char *text, size_t size);

/* Reads a proc_pid_status(5) in the same way, but for the groups: root inside may have 65,536, and more comes after them.
 * Unlike "stat", "cmdline" and the links in "fd", it waits for no lock that the process keeps, as one does that executes a
 * program, or maps a file, and waits for a file system that its user serves (FUSE). */
size_t process_read_status(const char *path, char *text, size_t size);

/* The same of a file that is open. */
size_t process_read_status_fd(int file, char *text, size_t size);

/* A number of proc_pid_status(5), as "\nUid:\t"; -1: there is none. */
long process_number(const char *status, const char *label);

/* Whether it runs for a user. Root inside has uid 0, but another PID namespace than the node's, of which init is the node's own. */
bool process_is_users(const char *status);

/* Whether the thread, "/proc/PID/task/TID", waits: one that got SIGKILL and does is not ended by it. One that exits, or writes a core
 * file, and asks a file system says that it sleeps, or that its tracer has stopped it, and hears no signal all the same. */
bool process_thread_waits(const char *thread);

#endif
