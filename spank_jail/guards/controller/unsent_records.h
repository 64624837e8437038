/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps the accounting records that slurmctld has not sent to slurmdbd yet in a file, so that none is lost
 * when it is killed. */
#ifndef JAIL_UNSENT_RECORDS_H
#define JAIL_UNSENT_RECORDS_H

#include <stdint.h>

#include "native/base/error.h"

/* Lets slurmctld, the program that calls this, keep on disk the records that wait for slurmdbd, as soon as it has loaded the
 * plugin that has them; nothing is done where there is no accounting. What stands against it is told to `complain`, in
 * a thread: 1, it keeps them in an unknown way; -1, an error. `protocol` is the version of Slurm's protocol; with 0 nothing is
 * kept until slurmctld has told slurmdbd something. Returns 0, or the number of an error. */
int jail_unsent_records_keep(uint16_t protocol, void (*complain)(int missing, const struct jail_error *err));

#endif
