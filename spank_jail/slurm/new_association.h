/* SPDX-License-Identifier: Apache-2.0 */
/* What srun, sbatch and salloc do for a user whose association slurmctld has not heard of yet. */
#ifndef JAIL_NEW_ASSOCIATION_H
#define JAIL_NEW_ASSOCIATION_H

/* Waits until slurmctld has an association of this user, ten seconds at most; not where it asks for none. A convenience, as
 * jail_new_accounts_wait: who has none is refused. */
void jail_new_association_wait(void);

#endif
