/* SPDX-License-Identifier: Apache-2.0 */
/* Limits how long slurmstepd puts off SIGKILL for processes that write core files.
 *
 * Slurm puts it off without an end. A core file on a file system that its user serves, and that does not answer, or
 * one large core file after another keeps the step for ever, and slurmctld drains the node.
 */
#ifndef JAIL_CORE_DUMPS_H
#define JAIL_CORE_DUMPS_H

#include <stdbool.h>

#include "native/base/error.h"

/* Seconds, from the first time that slurmstepd asks. */
#define JAIL_CORE_DUMPS_LONGEST_S 20

/* In slurmstepd: after that time no process writes a core file, as far as it can tell. Returns 0 or -1. */
int jail_core_dumps_guard(struct jail_error *err);

/* Whether a path is "/proc/PID/stat", and PID may write a core file for longer, `waited` seconds after the first was asked about. It
 * waits for no lock of that process. */
bool jail_core_dumps_is_spared(const char *path, long waited);

#endif
