/* SPDX-License-Identifier: Apache-2.0 */
/* Counts the letters in which two names of settings differ, to suggest the right one for a misspelt one. settings.c
 * calls it. */
#define _GNU_SOURCE
#include "edit_distance.h"

#include <stddef.h>
#include <string.h>

#define PREFIX "ENROOT_"
#define LONGEST 32

static unsigned least(unsigned a, unsigned b)
{
	return a < b ? a : b;
}

/* The distance of Damerau and Levenshtein. */
static unsigned distance(const char *a, const char *b)
{
	unsigned rows[LONGEST + 1][LONGEST + 1];
	size_t m = strlen(a), n = strlen(b);

	if (m > LONGEST || n > LONGEST)
		return LONGEST;
	for (size_t i = 0; i <= m; i++)
		for (size_t j = 0; j <= n; j++) {
			if (!i || !j) {
				rows[i][j] = (unsigned)(i + j);
				continue;
			}
			rows[i][j] = least(least(rows[i - 1][j], rows[i][j - 1]) + 1, rows[i - 1][j - 1] + (a[i - 1] != b[j - 1]));
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
				rows[i][j] = least(rows[i][j], rows[i - 2][j - 2] + 1);
		}
	return rows[m][n];
}

unsigned edit_distance(const char *key, const char *known)
{
	return distance(key + strlen(PREFIX), known + strlen(PREFIX));
}
