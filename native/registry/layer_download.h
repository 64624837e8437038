/* SPDX-License-Identifier: Apache-2.0 */
/* One layer that is being downloaded, and read as it comes. Only the registry client uses this header.
 *
 * All fields are guarded by the transport's lock, and waits are on its condition: a stop wakes everybody.
 */
#ifndef REGISTRY_WORK_H
#define REGISTRY_WORK_H

#include "fetch.h"
#include "spool.h"

enum download_state { DOWNLOAD_WAITING, DOWNLOAD_RUNNING, DOWNLOAD_DONE, DOWNLOAD_FAILED };

struct layer_download {
	struct layer_download *next;
	struct layers *layers;
	unsigned layer;
	enum download_state state;
	bool opened;    /* somebody has a descriptor of it */
	bool again;     /* the layer was fetched before: not what a draft of the cache has */
	bool direct;    /* into the pipe; else into the spool */
	bool writing;   /* into the spool, without the lock */
	bool gone;      /* nobody reads any more */
	bool kept;      /* the spool is the caller's file: it takes all bytes */
	bool given_up;  /* the spool is full, and nobody reads yet: to be fetched again when its turn comes */
	int spool, pipe; /* -1: none */
	unsigned long long spooled;
	unsigned long long reserved; /* bytes of the spool's limit */
	pthread_t pump;
	bool has_pump;
};

struct layers {
	struct registry *registry;
	struct transport *transport;
	const struct registry_image *image;
	struct layer_download *first, **last;
	struct layer_download **current; /* by layer; NULL: skipped so far */
	bool *anonymous;       /* by layer: it was fetched, first of all, without saying who asks */
	const int *keep;       /* by layer, or NULL */
	struct spool spool;
	unsigned long long reserved;
	pthread_t *threads;
	unsigned n_threads, idle;
	bool failed, lent_http;
	struct registry_error error;
};

static inline void layers_lock(struct layers *layers)
{
	pthread_mutex_lock(&layers->transport->lock);
}

static inline void layers_unlock(struct layers *layers)
{
	pthread_mutex_unlock(&layers->transport->lock);
}

/* With the lock held. */
static inline void layers_changed(struct layers *layers)
{
	pthread_cond_broadcast(&layers->transport->wake);
}

static inline void layers_wait(struct layers *layers)
{
	pthread_cond_wait(&layers->transport->wake, &layers->transport->lock);
}

static inline bool layers_stopped(const struct layers *layers)
{
	return atomic_load(&layers->transport->stopped);
}

/* fetch_request.deliver: `context` is the struct layer_download. */
int layer_download_deliver(void *context, const char *data, size_t length);

/* A thread that brings the spool's bytes into the pipe, and lets the fetching one write there once it has caught up. */
void *layer_download_pump(void *context);

/* With the lock held: the spool's room is there for others. */
void layer_download_release(struct layer_download *download);

/* Threads of the client get no signals: they are the main thread's, and a reader that has gone is an error of write. */
void layer_download_block_signals(void);

#endif
