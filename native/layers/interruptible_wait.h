/* SPDX-License-Identifier: Apache-2.0 */
/* A wait for another thread that ends early when the caller says so: it is asked ten times a second,
 * so that Ctrl-C works. */
#ifndef IMAGE_INTERRUPTIBLE_WAIT_H
#define IMAGE_INTERRUPTIBLE_WAIT_H

#include <pthread.h>

#include "error.h"

struct image_interrupt {
	/* Returns 0: go on; or -1. It may be called as often as one likes, from that one thread. */
	int (*tell)(void *context, struct image_error *err);
	void *context;
};

/* Waits for `changed`, a tenth of a second at most, then asks without the lock. With `interrupt` NULL it waits until then, and asks
 * nobody. Returns 0, or -1: stop. */
int image_interruptible_wait(const struct image_interrupt *interrupt, pthread_cond_t *changed, pthread_mutex_t *mutex,
			     struct image_error *err);

#endif
