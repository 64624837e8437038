/* SPDX-License-Identifier: Apache-2.0 */
/* Limits the length of resource texts (TRES, such as "gres/gpu:a100:2,cpu=4") in requests for steps. */
#ifndef JAIL_TRES_TEXTS_H
#define JAIL_TRES_TEXTS_H

#include <link.h>

#include "native/base/error.h"

/* In slurmctld: a text of resources is valid up to 1,024 letters. Returns 0; 1 when it looks at them in an unknown way; -1. */
int jail_tres_texts_guard(const struct link_map *slurmctld, struct jail_error *err);

#endif
