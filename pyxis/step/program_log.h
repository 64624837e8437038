/* SPDX-License-Identifier: Apache-2.0 */
/* What a program that the plugin ran printed: kept in memory, to be shown to the user if it fails. */
#ifndef PYXIS_PROGRAM_LOG_H
#define PYXIS_PROGRAM_LOG_H

#include <sys/types.h>

#include "native/base/error.h"

/* An open file in memory; or -1 and `err`. */
int pyxis_log_open(struct jail_error *err);

/* Forgets what is in it. Returns 0, or -1 with `err`. */
int pyxis_log_clear(int log, struct jail_error *err);

/* What was written from byte `from` on, the last MiB of it at most, while a program may still write: a new string; NULL:
 * nothing. `end` becomes the place behind it (NULL: it is of no interest). */
char *pyxis_log_text(int log, off_t from, off_t *end);

/* What the last error in `text` says: a line of enroot's that begins with [ERROR], and the indented ones below it. A new
 * string, or NULL. */
char *pyxis_log_reason(const char *text);

/* The last line of `text` that is complete, without [INFO] or [WARN] before it. A new string, or NULL. */
char *pyxis_log_latest(const char *text);

#endif
