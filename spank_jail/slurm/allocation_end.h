/* SPDX-License-Identifier: Apache-2.0 */
/* Makes srun and salloc tell slurmctld again that their allocation is over, if it did not answer. */
#ifndef JAIL_ALLOCATION_END_H
#define JAIL_ALLOCATION_END_H

/* Has this program tell slurmctld again when it was not heard. A convenience: without it an allocation may stay until somebody
 * cancels it. */
void jail_allocation_end_tell(void);

#endif
