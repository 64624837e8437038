/* SPDX-License-Identifier: Apache-2.0 */
/* Closes the descriptors that a process forked from slurmstepd has inherited, so that users' programs
 * do not get them. */
#ifndef PYXIS_DESCRIPTORS_H
#define PYXIS_DESCRIPTORS_H

#include <stddef.h>

/* Closes all but the standard streams and those in `kept`, of which -1 is none. */
void descriptors_close_but(const int *kept, size_t n);

/* The same, by execution alone: what is open stays so until then. */
void descriptors_seal_but(const int *kept, size_t n);

#endif
