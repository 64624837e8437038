/* SPDX-License-Identifier: Apache-2.0 */
/* Checks the spelling of device names of the Container Device Interface (CDI), such as nvidia.com/gpu=all. */
#ifndef JAIL_DEVICE_NAME_H
#define JAIL_DEVICE_NAME_H

#include "native/base/error.h"

/* Is `name` a qualified device name, vendor/class=device, as CDI 1.0 spells it? Returns 0 or -1. */
int jail_cdi_name_check(const char *name, struct jail_error *err);

#endif
