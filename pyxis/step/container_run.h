/* SPDX-License-Identifier: Apache-2.0 */
/* Runs programs that prepare or save a step's container, such as enroot, and shows their messages to the user. */
#ifndef PYXIS_CONTAINER_RUN_H
#define PYXIS_CONTAINER_RUN_H

#include "container_state.h"

/* Runs a program of which the log takes what it says, as pyxis_runtime_run does; `progress` (may be NULL) is what the user
 * is told now and then, with the program's latest line behind it. */
int pyxis_container_run(struct pyxis_container *container, char *const *arguments, struct text_buffer *output,
			const char *progress, struct jail_error *err);

/* The same beginning, for what goes on running: an empty log, and its heading. Returns 0 or -1. */
int pyxis_container_begin(struct pyxis_container *container, const char *program, struct jail_error *err);

/* A line to the user; `format` has two "%s". */
void pyxis_container_say(const struct pyxis_container *container, const char *format, const char *first, const char *second);

/* Tells what the last program said, line by line under a heading. */
void pyxis_container_show_log(const struct pyxis_container *container);
/* After a failure: why, in that program's words, what to do, and then all of its log. */
void pyxis_container_explain(const struct pyxis_container *container);

#endif
