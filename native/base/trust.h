/* SPDX-License-Identifier: Apache-2.0 */
/* Opens a file or directory only if root alone can write it and all directories above it. */
#ifndef JAIL_TRUST_H
#define JAIL_TRUST_H

#include "error.h"

/* Opens `path` (O_PATH | O_DIRECTORY when `directory`, else O_RDONLY) after checking that it and every
 * directory above it belong to root and can be written by root alone. A sticky directory above it
 * (/tmp) passes: nobody else can rename root's entries there. Symlinks on the way are followed first;
 * what they lead to is checked. `what` is the noun for messages ("jail root", "mount plan").
 * Returns a descriptor, or -1; what is wrong with a directory's own owner or mode counts as inside: root
 * in the jail may have changed it. */
int jail_open_trusted(const char *path, int directory, const char *what, struct jail_error *err);

#endif
