/* SPDX-License-Identifier: Apache-2.0 */
/* Checks and converts settings that are numbers, sizes, times, or yes and no. */
#ifndef ENROOT_NUMBER_H
#define ENROOT_NUMBER_H

#include <stdbool.h>

#include "native/base/error.h"

/* Whether `value` is one that the setting `key` may have: any is, unless the setting is a number. Empty, and what means no, stand
 * for the default. Returns 0, or -1 with a message that names both. */
int number_check(const char *key, const char *value, struct jail_error *err);

/* Not empty, and not no, n, false or f in any case. */
bool settings_means_yes(const char *value);

/* "10G", "512M", "1024": bytes; -1: it is none. */
long long number_size(const char *text);

#endif
