/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps slurmdbd from confirming changes that its database has lost. */
#ifndef JAIL_TRANSACTIONS_H
#define JAIL_TRANSACTIONS_H

#include <stdbool.h>

/* All of these are about the calling thread, which serves one client and has one connection to the database. */

/* It serves the client of this connection. */
void jail_transactions_serve(int fd);

/* The database keeps changes of this connection when it is told to (`begun`), or at once. */
void jail_transactions_begin(const void *database, bool begun);

/* A query was made. */
void jail_transactions_add(const void *database, const char *query);

/* The changes were kept, or taken back on purpose. */
void jail_transactions_end(const void *database);

/* The connection to the database is no more. With changes that were neither, its client gets no answer: the connection to it ends. */
void jail_transactions_lose(const void *database);

#endif
