/* SPDX-License-Identifier: Apache-2.0 */
/* Makes srun, sbatch and salloc wait until slurmctld knows a user who was just added to the jail. */
#ifndef JAIL_NEW_ACCOUNTS_H
#define JAIL_NEW_ACCOUNTS_H

#include <stdbool.h>

/* Milliseconds after which a change of the jail's accounts is known to slurmctld. jail-accounts looks every 400 ms, waits
 * another 150 for a second look, and writes its copy, on a network volume, too. */
#define JAIL_ACCOUNTS_KNOWN_MS 1500

/* How many milliseconds to wait until the newest change of the accounts in `etc` is known; 0: it is. Never more than
 * JAIL_ACCOUNTS_KNOWN_MS, whatever the times of the files are. */
long jail_new_accounts_wait_ms(const char *etc);

/* Waits that long for those in /etc. Returns whether it did. A convenience: slurmctld refuses whom it does not know, waited or not. */
bool jail_new_accounts_wait(void);

#endif
