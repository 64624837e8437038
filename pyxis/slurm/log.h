/* SPDX-License-Identifier: Apache-2.0 */
/* Logs what the plugin reports, each line with the plugin's name before it. */
#ifndef PYXIS_LOG_H
#define PYXIS_LOG_H

#include "native/base/error.h"

#define PYXIS_NAME_IN_LOG "pyxis: "

/* To the user. */
void pyxis_log_say(const char *line);

/* To the user and the node's log. Returns -1, which is what a hook returns: 22.05 and 24.11 take positive numbers for
 * success. */
int pyxis_log_error(const struct jail_error *err);

#endif
