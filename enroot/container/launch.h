/* SPDX-License-Identifier: Apache-2.0 */
/* Becomes the command of a container: looks a program up in the PATH of its environment, and executes it. */
#ifndef ENROOT_LAUNCH_H
#define ENROOT_LAUNCH_H

#include "native/base/error.h"

/* Executes `arguments`, looked up in the PATH of `environment`. Returns -1: it could not; err->number says why. */
int launch(char *const *arguments, char *const *environment, struct jail_error *err);

#endif
