/* SPDX-License-Identifier: Apache-2.0 */
/* Escapes what clients send to slurmdbd, so that no text of theirs becomes part of an SQL query. */
#ifndef JAIL_QUERIES_H
#define JAIL_QUERIES_H

#include <stdbool.h>
#include <stddef.h>

/* Writes `text`, in which Slurm has put a backslash before each ' and \, to `to`, with one before what ends a name or a number of a
 * query, too. Returns the length without the NUL; with `to` NULL nothing is written. */
size_t jail_queries_escape(const char *text, char *to);

/* Whether all backslashes of a query are within '...', and it has no comment. A backslash elsewhere is of a client's text that
 * would be a part of the query itself. */
bool jail_queries_is_sound(const char *query);

#endif
