/* SPDX-License-Identifier: Apache-2.0 */
/* Macros for fuzz targets: a condition that does not hold ends the process with its text. */
#ifndef JAIL_FUZZ_H
#define JAIL_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "native/base/error.h"

#define MUST(condition)                                                                            \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #condition); \
			abort();                                                                   \
		}                                                                                  \
	} while (0)

/* Called by libFuzzer. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A failure says something, on one line. */
static inline void must_explain(const struct jail_error *err)
{
	char text[1400];

	MUST(err->message[0]);
	/* A call has an errno; a broken rule may have one for nofail's sake (cdi). */
	MUST(!err->syscall[0] || err->number);
	for (const char *c = jail_error_format(err, text, sizeof(text)); *c; c++)
		MUST(*c != '\n');
}

#endif
