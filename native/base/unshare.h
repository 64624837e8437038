/* SPDX-License-Identifier: Apache-2.0 */
/* Makes a namespace as another uid when root has used up the number that the kernel allows to one uid. */
#ifndef JAIL_UNSHARE_H
#define JAIL_UNSHARE_H

#include <stdbool.h>

/* Whether unshare(2), which just failed for root with `errno`, made one namespace more than root may have. */
bool unshare_is_counted(int flags);

/* unshare(2), for once as a uid by chance; the thread is root again afterwards. Its process cannot be traced by its own uid,
 * nor dump core, until it executes a program. Returns 0, or -1 with errno ENOSPC. */
int unshare_as_another(int flags);

#endif
