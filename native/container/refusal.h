/* SPDX-License-Identifier: Apache-2.0 */
/* Explains why the kernel refuses to make a namespace: which sysctl or security module, and what to do. */
#ifndef ENROOT_REFUSAL_H
#define ENROOT_REFUSAL_H

#include "native/base/error.h"

/* Fills `err` for `call`, which failed with `number`. `proc` is "/proc", elsewhere in tests. Returns -1. */
int refusal_explain(const char *call, int number, const char *proc, struct jail_error *err);

#endif
