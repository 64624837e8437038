/* SPDX-License-Identifier: Apache-2.0 */
/* Checks single fields of passwd(5), group(5) and shadow(5) lines that come from the jail. */
#ifndef ACCOUNT_FIELDS_H
#define ACCOUNT_FIELDS_H

#include <stdbool.h>
#include <stddef.h>

/* A decimal number of a whole field. */
bool account_number(const char *text, unsigned long max, unsigned long *number);

bool account_id_is_ordinary(unsigned long id);

/* Letters of ASCII, digits, and what is usual within names. All digits would be an id; a dash in front an option. */
bool account_name_is_good(const char *name);

/* An absolute path without "..": sshd looks below the jail's root for it. */
bool account_path_is_good(const char *path);

bool account_has_control(const char *bytes, size_t size);

/* Splits a line at its colons, in place. Returns whether there are `n` fields exactly. */
bool account_split(char *line, char **fields, int n);

/* Empty: not set. -1 is written for that, too. */
bool account_age_is_good(const char *field);

#endif
