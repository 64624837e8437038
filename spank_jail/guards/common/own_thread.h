/* SPDX-License-Identifier: Apache-2.0 */
/* Starts a thread in slurmd or slurmctld for a guard that works in the background. */
#ifndef JAIL_OWN_THREAD_H
#define JAIL_OWN_THREAD_H

/* Starts a thread that nobody waits for and that takes no signal: those are for the program's own threads.
 * Returns 0, or the number of an error. */
int jail_own_thread_start(void *(*run)(void *), void *argument);

#endif
