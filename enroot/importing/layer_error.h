/* SPDX-License-Identifier: Apache-2.0 */
/* Converts the error struct of native/layers to the one that enroot's commands print. */
#ifndef IMPORTING_FAULT_H
#define IMPORTING_FAULT_H

#include "native/base/error.h"
#include "native/layers/error.h"

/* Fills `err`; `where` is the layer, image or file that is meant, or NULL. Returns -1. */
int image_error_to_jail(const struct image_error *fault, const char *where, struct jail_error *err);

#endif
