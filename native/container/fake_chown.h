/* SPDX-License-Identifier: Apache-2.0 */
/* Makes calls that change owners and ids do nothing and succeed in a container. Its user namespace has one uid, so
 * they would fail, and package managers and tar would stop. */
#ifndef ENROOT_FAKE_CHOWN_H
#define ENROOT_FAKE_CHOWN_H

#include "native/base/error.h"

/* For the calling process and all that come from it. It has CAP_SYS_ADMIN in its user namespace, or no_new_privs is
 * set. Returns 0 or -1. */
int fake_chown(struct jail_error *err);

#endif
