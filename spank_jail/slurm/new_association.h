/* SPDX-License-Identifier: Apache-2.0 */
/* Makes srun, sbatch and salloc wait until slurmctld knows a new user's association, his entry in the accounting. */
#ifndef JAIL_NEW_ASSOCIATION_H
#define JAIL_NEW_ASSOCIATION_H

/* Waits until slurmctld has an association of this user, ten seconds at most; not where it asks for none. A convenience, as
 * jail_new_accounts_wait: who has none is refused. */
void jail_new_association_wait(void);

#endif
