/* SPDX-License-Identifier: Apache-2.0 */
/* Moves a task into its container: setns(2) in the task's own process, without a helper program. */
#ifndef PYXIS_TASK_H
#define PYXIS_TASK_H

#include <sys/types.h>

#include "native/base/variables.h"
#include "pyxis/options/request.h"

/* The mount namespace of process `pid`; 0: it has ended. */
ino_t pyxis_task_mounts(pid_t pid);

/* Enters the namespaces of `member`, whose mount namespace must be `mounts`, and the directory that is asked for, or else
 * its own. Of the kinds `unshare` (PYXIS_NET...) it must be in others than before. `environment` becomes the container's. For good: what follows is confined as every process of it. Returns 0 or
 * -1. */
int pyxis_task_join(pid_t member, ino_t mounts, unsigned unshare, const struct pyxis_request *request,
		    struct variables *environment, struct jail_error *err);

/* What the variables of a task become: pairs to set, and names (without "=") to remove. `task` is its environment. */
void pyxis_task_environment(char *const *task, const struct variables *container, const struct pyxis_request *request,
			    struct text_list *changes);

#endif
