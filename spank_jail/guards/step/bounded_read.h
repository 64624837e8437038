/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a file of /proc whose reader may be kept waiting, by a process that is ended then. One process reads for as long as it
 * answers: a process for each file would cost a step of many tasks more than what it reads.
 */
#ifndef JAIL_BOUNDED_READ_H
#define JAIL_BOUNDED_READ_H

/* Returns a descriptor of a copy of the file, at its beginning; -1: it cannot be opened, or there was no answer within half a
 * second. After three of those nothing is read for half a minute. Threads take turns. */
int bounded_read(const char *path);

#endif
