/* SPDX-License-Identifier: Apache-2.0 */
/* What all connections of one import share: options, the sign to stop, and the pause that a registry asked for by
 * Retry-After, which http.c reads. cellblock/retries.py does the same in Python. */
#ifndef REGISTRY_TRANSPORT_H
#define REGISTRY_TRANSPORT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "native/settings/settings.h"
#include "error.h"

/* A connection of the transport's, which it wakes. */
struct transport_handle {
	struct transport_handle *next;
	void *multi; /* its CURLM */
};

struct transport {
	const struct settings *settings;
	long connect_timeout_s, transfer_timeout_s; /* 0: none */
	unsigned connections;
	unsigned attempts; /* at one thing, without progress in between */
	bool allow_http;   /* ENROOT_ALLOW_HTTP: plain http, everywhere */
	atomic_bool stopped;
	atomic_bool identified; /* a request of this import said who asks */
	int stop;             /* an eventfd that can be read from once stopped */
	pthread_mutex_t lock;
	pthread_cond_t wake;  /* who sleeps; signalled by stop */
	double not_before;    /* by the monotonic clock: a 429 asked for it. Under the lock */
	struct transport_handle *handles; /* of open connections. Under the lock */
};

void transport_begin(struct transport *transport, const struct settings *settings);
void transport_end(struct transport *transport);

/* Has transport_stop wake `handle`, whose CURLM is `multi`, until it is removed. Any thread. */
void transport_add(struct transport *transport, struct transport_handle *handle, void *multi);
void transport_remove(struct transport *transport, const struct transport_handle *handle);

/* Wakes all who sleep or wait for the network. Any thread. */
void transport_stop(struct transport *transport);

/* Seconds on the monotonic clock. */
double transport_now(void);

/* Returns 0, or -1: stopped meanwhile. */
int transport_sleep(struct transport *transport, double seconds);

/* Waits for as long as a 429 asked for. Returns 0, or -1: stopped. */
int transport_pause(struct transport *transport);

/* Attempts at one thing that failed since the last progress. */
struct retries {
	struct transport *transport;
	unsigned failed;
};

/* After a failure `err`: waits and returns 0: try again. -1: enough, or that will not pass. */
int retries_wait(struct retries *retries, struct registry_error *err);

#endif
