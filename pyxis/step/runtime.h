/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the program enroot as the task's user, in the task's namespaces. */
#ifndef PYXIS_RUNTIME_H
#define PYXIS_RUNTIME_H

#include <stdint.h>
#include <sys/types.h>

#include "native/base/variables.h"
#include "pyxis/options/arguments.h"
#include "pyxis/options/request.h"

/* Whose container it is. */
struct pyxis_owner {
	uint32_t job, step, uid, gid;
};

/* What enroot is given of the environment of a job: all but PATH, what belongs to one task, what the administrator
 * decides; and what the request sets. */
void pyxis_runtime_environment(struct variables *environment, char *const *job, const struct pyxis_owner *owner,
			       const struct pyxis_request *request, const struct pyxis_arguments *arguments);

/* What is done again and again while a program runs. */
struct pyxis_meanwhile {
	int every_ms;
	void (*tell)(void *context);
	void *context;
};

/* Runs `arguments` to its end; it dies with the caller. `log` takes its messages, `output` its standard output (may be
 * NULL: the log, too); besides them it inherits the descriptor `inherited` (0: none); `meanwhile` may be NULL. Returns its exit
 * status, 128 + N after signal N, or -1 with `err`. */
int pyxis_runtime_run(char *const *arguments, const struct variables *environment, int log, int inherited,
		      struct text_buffer *output, const struct pyxis_meanwhile *meanwhile, struct jail_error *err);

/* Starts `arguments`, which inherits the descriptors ready[1] and `life`, as a process that is nobody's child, and waits
 * for a byte in the pipe `ready`, whose second end it closes. Returns the process id, 0 when it ended without a byte, or
 * -1 with `err`. */
pid_t pyxis_runtime_start(char *const *arguments, const struct variables *environment, int log, int ready[2], int life,
			  struct jail_error *err);

#endif
