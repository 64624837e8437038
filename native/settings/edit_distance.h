/* SPDX-License-Identifier: Apache-2.0 */
/* Counts the letters in which two names of settings differ, to suggest the right one for a misspelt one. */
#ifndef ENROOT_EDIT_DISTANCE_H
#define ENROOT_EDIT_DISTANCE_H

/* How many letters of `key` have to be put in, taken out, changed, or exchanged with their neighbour to make it `known`. Both begin with
 * ENROOT_; more than 32 letters after it count as a difference of 32. */
unsigned edit_distance(const char *key, const char *known);

#endif
