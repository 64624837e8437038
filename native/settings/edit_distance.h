/* SPDX-License-Identifier: Apache-2.0 */
/* The edit distance of two names of settings, to say which one somebody meant. */
#ifndef ENROOT_EDIT_DISTANCE_H
#define ENROOT_EDIT_DISTANCE_H

/* How many letters of `key` have to be put in, taken out, changed, or exchanged with their neighbour to make it `known`. Both begin with
 * ENROOT_; more than 32 letters after it count as a difference of 32. */
unsigned edit_distance(const char *key, const char *known);

#endif
