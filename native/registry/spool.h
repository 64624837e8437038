/* SPDX-License-Identifier: Apache-2.0 */
/* Unnamed temporary files for layers that are downloaded before they are read. */
#ifndef REGISTRY_SPOOL_H
#define REGISTRY_SPOOL_H

#include "native/settings/settings.h"

struct spool {
	char *folder;             /* NULL: there is none, and nothing is fetched before its turn */
	unsigned long long limit; /* bytes that may wait at once */
};

/* TEMP_PATH, unless that is memory: then CACHE_PATH. */
void spool_begin(struct spool *spool, const struct settings *settings);
void spool_end(struct spool *spool);

/* A descriptor of an empty file; -1: errno. */
int spool_open(const struct spool *spool);

#endif
