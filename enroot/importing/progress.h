/* SPDX-License-Identifier: Apache-2.0 */
/* Prints how far an import is: a line that changes on a terminal, otherwise a line every few seconds. */
#ifndef IMPORTING_PROGRESS_H
#define IMPORTING_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct progress {
	unsigned long long total; /* bytes; 0: not known */
	int64_t began_ns, told_ns;
	bool terminal, shown;
};

void progress_begin(struct progress *progress, unsigned long long total);
void progress_tell(struct progress *progress, unsigned long long done);
/* Before anything else is told. */
void progress_end(struct progress *progress);

/* "12.3 MiB" into `text`, which it returns. */
char *progress_bytes(unsigned long long bytes, char text[32]);
int64_t progress_now_ns(void);

#endif
