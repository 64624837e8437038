/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps slurmdbd from confirming changes that its database has lost. service_guard.c calls it.
 *
 * slurmdbd commits the changes of a message, ignores errors of that, and sends its answer. If the database was killed
 * before, slurmctld takes the record for stored, and the job is missing in the accounting. Here slurmdbd's connection
 * to slurmctld ends instead, and slurmctld sends the record again.
 */
#define _GNU_SOURCE
#include "transactions.h"

#include <stddef.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

static _Thread_local int served = -1;
/* Connections to the database: on which changes wait to be kept, and on which there are some. */
static _Thread_local const void *waiting, *changed;

void jail_transactions_serve(int fd)
{
	served = fd;
}

void jail_transactions_begin(const void *database, bool begun)
{
	if (begun)
		waiting = database;
	else if (waiting == database)
		waiting = changed = NULL;
}

/* A single one that changes nothing. */
static bool is_read(const char *query)
{
	static const char *const reads[] = { "select ", "show ", "set session " };
	const char *next = strchr(query, ';');

	if (next && next[1 + strspn(next + 1, " \n")])
		return false;
	for (size_t i = 0; i < sizeof(reads) / sizeof(reads[0]); i++)
		if (!strncasecmp(query, reads[i], strlen(reads[i])))
			return true;
	return false;
}

void jail_transactions_add(const void *database, const char *query)
{
	if (database == waiting && !is_read(query))
		changed = database;
}

void jail_transactions_end(const void *database)
{
	if (changed == database)
		changed = NULL;
}

void jail_transactions_lose(const void *database)
{
	if (!changed || changed != database)
		return;
	changed = NULL;
	/* Not SHUT_RDWR: what poll(2) then says is fatal to slurmdbd 22.05. */
	if (served >= 0)
		(void)shutdown(served, SHUT_WR);
}
