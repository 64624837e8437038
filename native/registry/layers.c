/* SPDX-License-Identifier: Apache-2.0 */
/* Layers are fetched by up to ENROOT_MAX_CONNECTIONS threads, in the order they are read in. The one that is read streams
 * through a pipe; those whose turn comes later go to a spool, or to the file that the caller gave. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "native/base/scoped.h"
#include "layer_download.h"

#define PIPE_SIZE (1024 * 1024)
/* Threads besides, for layers that are read a second time while all others wait for the reader. */
#define MORE_THREADS 4

static void fail(struct layers *layers, const struct registry_error *err)
{
	bool first = false;

	layers_lock(layers);
	if (!layers->failed && err->fault != REGISTRY_FAULT_STOPPED) {
		layers->failed = first = true;
		layers->error = *err;
	}
	layers_unlock(layers);
	/* The rest is for nothing. Who reads a layer sees its end, and asks registry_failure. */
	if (first)
		transport_stop(layers->transport);
}

/* With the lock held: what is to be done next; NULL: nothing now. What is opened comes first. */
static struct work *next_work(struct layers *layers)
{
	for (struct work *work = layers->first; work; work = work->next)
		if (work->state == WORK_WAITING && work->opened)
			return work;
	for (struct work *work = layers->first; work; work = work->next) {
		unsigned long long size = layers->image->layers[work->layer].size;
		if (work->state != WORK_WAITING)
			continue;
		if (work->kept)
			return work;
		if (!layers->spool.folder || layers->reserved > layers->spool.limit ||
		    size > layers->spool.limit - layers->reserved)
			continue;
		work->spool = spool_open(&layers->spool);
		if (work->spool < 0) {
			layers->spool.limit = 0;
			return NULL;
		}
		work->reserved = size;
		layers->reserved += size;
		return work;
	}
	return NULL;
}

static void run(struct layers *layers, struct http *http, struct work *work)
{
	const struct fetch_request request = {
		.layer = &layers->image->layers[work->layer], .deliver = work_deliver, .context = work,
	};
	struct registry_error err = { 0 };
	bool anonymous;
	int result = fetch_blob(layers->registry, http, &request, &anonymous, &err);

	if (result)
		fail(layers, &err);
	layers_lock(layers);
	if (result && work->given_up) {
		layers->spool.limit = 0; /* nothing fits any more */
		work->given_up = false;
		work->spooled = 0;
		work_release(work);
		work->state = WORK_WAITING;
		layers_changed(layers);
		layers_unlock(layers);
		return;
	}
	if (!work->again)
		layers->anonymous[work->layer] = anonymous;
	work->state = result ? WORK_FAILED : WORK_DONE;
	if (work->direct || (result && !work->has_pump))
		jail_close(&work->pipe);
	/* What waits to be opened keeps its spool, and a pump that is not done its own. */
	if (work->direct || work->gone || (result && !work->has_pump))
		work_release(work);
	layers_changed(layers);
	layers_unlock(layers);
}

static void *serve(void *context)
{
	struct layers *layers = context;
	struct registry_error err;
	struct http *http = NULL, *own = NULL;

	work_block_signals();
	layers_lock(layers);
	/* The connection that gave the manifest is open still. */
	if (!layers->lent_http) {
		layers->lent_http = true;
		http = layers->registry->http;
	}
	layers_unlock(layers);
	if (!http && !(http = own = http_open(layers->transport, &err))) {
		fail(layers, &err);
		return NULL;
	}
	layers_lock(layers);
	while (!layers_stopped(layers)) {
		struct work *work = next_work(layers);
		if (work) {
			work->state = WORK_RUNNING;
			layers_unlock(layers);
			run(layers, http, work);
			layers_lock(layers);
			continue;
		}
		layers->idle++;
		layers_wait(layers);
		layers->idle--;
	}
	layers_unlock(layers);
	http_close(own);
	return NULL;
}

/* With the lock held. */
static int add_thread(struct layers *layers, bool again)
{
	if (layers->idle || layers->n_threads >= layers->transport->connections + (again ? MORE_THREADS : 0))
		return 0;
	if (pthread_create(&layers->threads[layers->n_threads], NULL, serve, layers))
		return layers->n_threads ? 0 : -1;
	layers->n_threads++;
	return 0;
}

/* With the lock held. */
static struct work *add_work(struct layers *layers, unsigned layer)
{
	struct work *work = calloc(1, sizeof(*work));

	if (!work)
		return NULL;
	*work = (struct work){ .layers = layers, .layer = layer, .spool = -1, .pipe = -1, .again = layers->current[layer] };
	/* A second time it has its bytes already. */
	if (layers->keep && layers->keep[layer] >= 0 && !layers->current[layer])
		work->spool = fcntl(layers->keep[layer], F_DUPFD_CLOEXEC, 3);
	work->kept = work->spool >= 0;
	*layers->last = work;
	layers->last = &work->next;
	layers->current[layer] = work;
	return work;
}

/* With the lock held. A descriptor, or -1 with errno. */
static int open_work(struct layers *layers, struct work *work, bool again)
{
	int ends[2];

	work->opened = true;
	if (work->state == WORK_DONE) {
		char path[32];
		/* With a place in it of its own: others may have this file too. */
		snprintf(path, sizeof(path), "/proc/self/fd/%d", work->spool);
		int fd = open(path, O_RDONLY | O_CLOEXEC), number = errno;
		work_release(work);
		layers_changed(layers); /* there is room again */
		errno = number;
		return fd;
	}
	if (pipe2(ends, O_CLOEXEC))
		return -1;
	fcntl(ends[1], F_SETFL, O_NONBLOCK);
	/* May be refused to users with many pipes; the usual 64 KiB serve too. */
	fcntl(ends[1], F_SETPIPE_SZ, PIPE_SIZE);
	work->pipe = ends[1];
	work->direct = work->state == WORK_WAITING && !work->kept;
	layers_changed(layers);
	if (work->state != WORK_WAITING || !add_thread(layers, again)) {
		work->has_pump = !work->direct && !pthread_create(&work->pump, NULL, work_pump, work);
		if (work->direct || work->has_pump)
			return ends[0];
	}
	jail_close(&work->pipe);
	close(ends[0]);
	errno = EAGAIN;
	return -1;
}

int registry_layer_open(void *context, unsigned layer)
{
	struct registry *registry = context;
	struct layers *layers = registry->layers;
	struct registry_error err;

	layers_lock(layers);
	struct work *work = layers->current[layer];
	while (work && work->given_up && !layers_stopped(layers))
		layers_wait(layers);
	bool again = work && work->opened;
	if (!work || again)
		work = add_work(layers, layer);
	int fd = work && !layers_stopped(layers) ? open_work(layers, work, again) : -1, number = errno;
	bool stopped = layers_stopped(layers);
	layers_unlock(layers);
	if (fd < 0 && !stopped) {
		registry_fail(&err, REGISTRY_FAULT_SYSTEM, "cannot hand over layer %.19s: %s",
			      layers->image->layers[layer].digest, strerrordesc_np(number));
		fail(layers, &err);
	}
	return fd;
}

int registry_layers_start(struct registry *registry, const struct registry_image *image, const bool *skip,
			  const int *keep, struct registry_error *err)
{
	struct layers *layers = calloc(1, sizeof(*layers));
	unsigned n = 0;

	if (layers) {
		layers->registry = registry;
		layers->transport = &registry->transport;
		layers->image = image;
		layers->keep = keep;
		layers->last = &layers->first;
		layers->current = calloc(image->n_layers + 1, sizeof(*layers->current));
		layers->anonymous = calloc(image->n_layers + 1, sizeof(*layers->anonymous));
		layers->threads = calloc(registry->transport.connections + MORE_THREADS, sizeof(*layers->threads));
		registry->layers = layers;
	}
	if (!layers || !layers->current || !layers->anonymous || !layers->threads)
		return registry_fail(err, REGISTRY_FAULT_SYSTEM, "no memory");
	for (unsigned i = 0; i < image->n_layers; i++)
		n += !(skip && skip[i]);
	if (!n)
		return 0;
	spool_begin(&layers->spool, registry->settings);
	layers_lock(layers);
	int result = 0;
	for (unsigned i = 0; i < image->n_layers && !result; i++)
		if (!(skip && skip[i]))
			result = add_work(layers, i) ? 0 : -1;
	for (unsigned i = 0; i < n && !result; i++)
		result = add_thread(layers, false);
	layers_unlock(layers);
	return result ? registry_fail(err, REGISTRY_FAULT_SYSTEM, "no memory, or no more threads") : 0;
}

bool registry_layer_is_anonymous(struct registry *registry, unsigned layer)
{
	struct layers *layers = registry->layers;

	if (!layers)
		return false;
	layers_lock(layers);
	bool anonymous = layers->anonymous[layer];
	layers_unlock(layers);
	return anonymous;
}

bool registry_failure(struct registry *registry, struct registry_error *err)
{
	struct layers *layers = registry->layers;

	if (!layers)
		return false;
	layers_lock(layers);
	bool failed = layers->failed;
	if (failed)
		*err = layers->error;
	layers_unlock(layers);
	return failed;
}

void layers_end(struct layers *layers)
{
	if (!layers)
		return;
	for (unsigned i = 0; i < layers->n_threads; i++)
		pthread_join(layers->threads[i], NULL);
	for (struct work *work = layers->first, *next; work; work = next) {
		next = work->next;
		if (work->has_pump)
			pthread_join(work->pump, NULL);
		jail_close(&work->pipe);
		jail_close(&work->spool);
		free(work);
	}
	spool_end(&layers->spool);
	free(layers->threads);
	free(layers->current);
	free(layers->anonymous);
	free(layers);
}
