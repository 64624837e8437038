/* SPDX-License-Identifier: Apache-2.0 */
/* What srun and salloc do so that slurmctld hears of the end of their allocation. */
#ifndef JAIL_ALLOCATION_END_H
#define JAIL_ALLOCATION_END_H

/* Has this program tell slurmctld again when it was not heard. A convenience: without it an allocation may stay until somebody
 * cancels it. */
void jail_allocation_end_tell(void);

#endif
