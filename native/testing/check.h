/* SPDX-License-Identifier: Apache-2.0 */
/* A macro for C unit tests: a failed check prints its line, and the program ends with the number of failures. */
#ifndef JAIL_CHECK_H
#define JAIL_CHECK_H

#include <stdio.h>
#include <string.h>

static int check_failed, check_done;

#define CHECK(condition)                                                                     \
	do {                                                                                 \
		check_done++;                                                                \
		if (!(condition)) {                                                          \
			check_failed++;                                                      \
			fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #condition); \
		}                                                                            \
	} while (0)

/* `text` must contain `part`. */
#define CHECK_HAS(text, part)                                                                         \
	do {                                                                                          \
		check_done++;                                                                         \
		if (!strstr((text), (part))) {                                                        \
			check_failed++;                                                               \
			fprintf(stderr, "%s:%d: \"%s\" is not in \"%s\"\n", __FILE__, __LINE__, part, text); \
		}                                                                                     \
	} while (0)

static inline int check_result(const char *name)
{
	printf("%s: %d checks, %d failed\n", name, check_done, check_failed);
	return check_failed ? 1 : 0;
}

#endif
