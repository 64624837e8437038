/* SPDX-License-Identifier: Apache-2.0 */
/* A user namespace with one uid has nobody else to give a file to: calls that change owners and ids do nothing in
 * a container and succeed, so that package managers and tar go on. */
#ifndef ENROOT_FAKE_CHOWN_H
#define ENROOT_FAKE_CHOWN_H

#include "native/base/error.h"

/* For the calling process and all that come from it. It has CAP_SYS_ADMIN in its user namespace, or no_new_privs is
 * set. Returns 0 or -1. */
int fake_chown(struct jail_error *err);

#endif
