/* SPDX-License-Identifier: Apache-2.0 */
/* Reads files in /proc from a child that can be killed if the read waits for ever. One child reads many files for as
 * long as it answers: a child per file would cost a step of many tasks more than the reading. */
#ifndef JAIL_BOUNDED_READ_H
#define JAIL_BOUNDED_READ_H

/* Returns a descriptor of a copy of the file, at its beginning; -1: it cannot be opened, or there was no answer within half a
 * second. After three of those nothing is read for half a minute. Threads take turns. */
int bounded_read(const char *path);

#endif
