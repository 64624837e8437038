/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that the tasks of a step on a node share: the first makes the container, the others wait for it
 * on a futex. */
#ifndef PYXIS_SHARED_MEMORY_H
#define PYXIS_SHARED_MEMORY_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "native/base/error.h"
#include "leftovers.h"
#include "root_identity.h"

enum pyxis_import_result { PYXIS_NO_IMPORT, PYXIS_IMAGE_FETCHED, PYXIS_IMAGE_CACHED, PYXIS_IMAGE_FAILED };

struct pyxis_import {
	uint32_t result; /* enum pyxis_import_result */
	uint64_t bytes;  /* of the image's file */
};

enum pyxis_state { PYXIS_IDLE, PYXIS_STARTING, PYXIS_RUNNING, PYXIS_FAILED };

struct pyxis_shared {
	uint32_t state;   /* enum pyxis_state; the futex */
	pid_t leader;     /* who makes it */
	pid_t member;     /* a process in the container */
	ino_t mounts;     /* its mount namespace: a process id may be another's after a while */
	uint32_t unshare; /* PYXIS_NET...: kinds of namespaces that are not to be the node's */
	uint32_t entered; /* tasks */
	uint32_t left[PYXIS_LEFTOVER_JOBS]; /* jobs of which there are leftovers; 0: none */
	struct pyxis_root_identity begun; /* the root that the step runs in, where it is to be saved */
	struct pyxis_import imported;
	uint32_t reported;    /* that their program will not run: once is enough */
};

/* Memory that forks of the caller share with it; NULL with `err`. */
struct pyxis_shared *pyxis_shared_make(struct jail_error *err);

/* Whether the caller is the first, and makes the container; then it publishes how that went. */
bool pyxis_shared_claim(struct pyxis_shared *shared);
void pyxis_shared_publish(struct pyxis_shared *shared, enum pyxis_state state);

/* Waits for that. PYXIS_FAILED also where the first ended without a word. */
enum pyxis_state pyxis_shared_wait(struct pyxis_shared *shared);

void pyxis_shared_enter(struct pyxis_shared *shared);

#endif
