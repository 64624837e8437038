/* SPDX-License-Identifier: Apache-2.0 */
/* The label of a container root: a file in it that says which job and step made it, and that no export copies.
 *
 * "JOB.STEP" is the label of a container with a name. "JOB.STEP temporary CLUSTER" is that of one that goes with its
 * step. The root's own name cannot say this: a user may call a container 7.5, and clusters that share homes count
 * their jobs alike.
 */
#ifndef PYXIS_MARK_H
#define PYXIS_MARK_H

#include <stdbool.h>

#include "runtime.h"

/* `cluster` NULL: a container with a name. */
void pyxis_root_label_write(const char *root, const struct pyxis_owner *owner, const char *cluster);

/* Whether the step made this container with a name. */
bool pyxis_root_label_is_of(const char *root, const struct pyxis_owner *owner);

/* Whether it was to go with a step of that cluster. */
bool pyxis_root_label_is_temporary(const char *root, const char *cluster);

/* fnmatch(3) of the marks of roots that go with the job, the caller's to free: in the scope of jobs those with names, too. */
char *pyxis_root_label_pattern(unsigned job, bool job_scope);

#endif
