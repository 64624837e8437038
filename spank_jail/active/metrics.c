/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the results of active checks to a file per node, from which the metrics exporter reads them. active_checks.c
 * calls it. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "active.h"
#include "native/base/scoped.h"
#include "native/base/text.h"

/* jail-records, in images/metrics, leaves out files that are older than half an hour. */
#define AGAIN_S 600
#define MOST_BYTES 65536

/* Whether `there` has what `here` has, and is new enough. */
static bool is_told(const char *here, const char *there)
{
	struct stat source, copy;

	return !stat(here, &source) && !stat(there, &copy) && copy.st_mtime > source.st_mtime && time(NULL) - copy.st_mtime < AGAIN_S;
}

static void copy_metrics(const char *here, const char *there)
{
	scoped_free char *text = text_read(AT_FDCWD, here, MOST_BYTES, NULL, &(struct jail_error){ 0 });

	/* What a full volume, or one that is read-only for now, does not take, is written at the next turn. */
	if (text)
		(void)text_replace(there, text, strlen(text), 0644);
}

void active_tell_metrics(const struct active_nodes *nodes, const char *state, const char *folder)
{
	if (access(folder, W_OK))
		return;
	for (size_t i = 0; i < nodes->n; i++) {
		scoped_free char *here = text_format("%s/%s/metrics", state, nodes->items[i].name);
		scoped_free char *there = text_format("%s/%s.prom", folder, nodes->items[i].name);
		if (!access(here, F_OK) && !is_told(here, there))
			copy_metrics(here, there);
	}
}
