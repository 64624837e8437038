/* SPDX-License-Identifier: Apache-2.0 */
/* Executes the command of a container: looks the program up in the PATH of the container's environment. */
#ifndef ENROOT_LAUNCH_H
#define ENROOT_LAUNCH_H

#include "native/base/error.h"

/* Executes `arguments`, looked up in the PATH of `environment`. Returns -1: it could not; err->number says why. */
int launch(char *const *arguments, char *const *environment, struct jail_error *err);

#endif
