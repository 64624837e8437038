/* SPDX-License-Identifier: Apache-2.0 */
/* What slurmctld has to tell slurmdbd outlives a slurmctld that is killed. */
#ifndef JAIL_UNSENT_RECORDS_H
#define JAIL_UNSENT_RECORDS_H

#include "native/base/error.h"

/* Lets slurmctld, the program that calls this, keep on disk the records that wait for slurmdbd, as soon as it has loaded the
 * plugin that has them; nothing is done where there is no accounting. What stands against it is told to `complain`, in
 * a thread: 1, it keeps them in an unknown way; -1, an error. Returns 0, or the number of an error. */
int jail_unsent_records_keep(void (*complain)(int missing, const struct jail_error *err));

#endif
