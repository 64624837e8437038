/* SPDX-License-Identifier: Apache-2.0 */
/* Downloads an image's layers by up to ENROOT_MAX_CONNECTIONS threads, in the order in which they are read. The one
 * that is read streams through a pipe; the others go to temporary files (spool.c), or to the cache's file that the
 * caller gave. enroot/importing calls it. */
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
static struct layer_download *next_download(struct layers *layers)
{
	for (struct layer_download *download = layers->first; download; download = download->next)
		if (download->state == DOWNLOAD_WAITING && download->opened)
			return download;
	for (struct layer_download *download = layers->first; download; download = download->next) {
		unsigned long long size = layers->image->layers[download->layer].size;
		if (download->state != DOWNLOAD_WAITING)
			continue;
		if (download->kept)
			return download;
		if (!layers->spool.folder || layers->reserved > layers->spool.limit ||
		    size > layers->spool.limit - layers->reserved)
			continue;
		download->spool = spool_open(&layers->spool);
		if (download->spool < 0) {
			layers->spool.limit = 0;
			return NULL;
		}
		download->reserved = size;
		layers->reserved += size;
		return download;
	}
	return NULL;
}

static void run_download(struct layers *layers, struct http *http, struct layer_download *download)
{
	const struct fetch_request request = {
		.layer = &layers->image->layers[download->layer], .deliver = layer_download_deliver, .context = download,
	};
	struct registry_error err = { 0 };
	bool anonymous;
	int result = fetch_blob(layers->registry, http, &request, &anonymous, &err);

	if (result)
		fail(layers, &err);
	layers_lock(layers);
	if (result && download->given_up) {
		layers->spool.limit = 0; /* nothing fits any more */
		download->given_up = false;
		download->spooled = 0;
		layer_download_release(download);
		download->state = DOWNLOAD_WAITING;
		layers_changed(layers);
		layers_unlock(layers);
		return;
	}
	if (!download->again)
		layers->anonymous[download->layer] = anonymous;
	download->state = result ? DOWNLOAD_FAILED : DOWNLOAD_DONE;
	if (download->direct || (result && !download->has_pump))
		jail_close(&download->pipe);
	/* What waits to be opened keeps its spool, and a pump that is not done its own. */
	if (download->direct || download->gone || (result && !download->has_pump))
		layer_download_release(download);
	layers_changed(layers);
	layers_unlock(layers);
}

static void *serve(void *context)
{
	struct layers *layers = context;
	struct registry_error err;
	struct http *http = NULL, *own = NULL;

	layer_download_block_signals();
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
		struct layer_download *download = next_download(layers);
		if (download) {
			download->state = DOWNLOAD_RUNNING;
			layers_unlock(layers);
			run_download(layers, http, download);
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
static struct layer_download *add_work(struct layers *layers, unsigned layer)
{
	struct layer_download *download = calloc(1, sizeof(*download));

	if (!download)
		return NULL;
	*download = (struct layer_download){ .layers = layers, .layer = layer, .spool = -1, .pipe = -1, .again = layers->current[layer] };
	/* A second time it has its bytes already. */
	if (layers->keep && layers->keep[layer] >= 0 && !layers->current[layer])
		download->spool = fcntl(layers->keep[layer], F_DUPFD_CLOEXEC, 3);
	download->kept = download->spool >= 0;
	*layers->last = download;
	layers->last = &download->next;
	layers->current[layer] = download;
	return download;
}

/* With the lock held. A descriptor, or -1 with errno. */
static int open_work(struct layers *layers, struct layer_download *download, bool again)
{
	int ends[2];

	download->opened = true;
	if (download->state == DOWNLOAD_DONE) {
		char path[32];
		/* With a place in it of its own: others may have this file too. */
		snprintf(path, sizeof(path), "/proc/self/fd/%d", download->spool);
		int fd = open(path, O_RDONLY | O_CLOEXEC), number = errno;
		layer_download_release(download);
		layers_changed(layers); /* there is room again */
		errno = number;
		return fd;
	}
	if (pipe2(ends, O_CLOEXEC))
		return -1;
	fcntl(ends[1], F_SETFL, O_NONBLOCK);
	/* May be refused to users with many pipes; the usual 64 KiB serve too. */
	fcntl(ends[1], F_SETPIPE_SZ, PIPE_SIZE);
	download->pipe = ends[1];
	download->direct = download->state == DOWNLOAD_WAITING && !download->kept;
	layers_changed(layers);
	if (download->state != DOWNLOAD_WAITING || !add_thread(layers, again)) {
		download->has_pump = !download->direct && !pthread_create(&download->pump, NULL, layer_download_pump, download);
		if (download->direct || download->has_pump)
			return ends[0];
	}
	jail_close(&download->pipe);
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
	struct layer_download *download = layers->current[layer];
	while (download && download->given_up && !layers_stopped(layers))
		layers_wait(layers);
	bool again = download && download->opened;
	if (!download || again)
		download = add_work(layers, layer);
	int fd = download && !layers_stopped(layers) ? open_work(layers, download, again) : -1, number = errno;
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
	for (struct layer_download *download = layers->first, *next; download; download = next) {
		next = download->next;
		if (download->has_pump)
			pthread_join(download->pump, NULL);
		jail_close(&download->pipe);
		jail_close(&download->spool);
		free(download);
	}
	spool_end(&layers->spool);
	free(layers->threads);
	free(layers->current);
	free(layers->anonymous);
	free(layers);
}
