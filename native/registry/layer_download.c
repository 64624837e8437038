/* SPDX-License-Identifier: Apache-2.0 */
/* Tracks one layer between the thread that downloads it and the thread that reads it. download_threads.c calls it. */
#define _GNU_SOURCE
#include "layer_download.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "native/base/scoped.h"

#define READ_BLOCK ((size_t)256 * 1024)

void layer_download_block_signals(void)
{
	sigset_t all;

	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, NULL);
}

void layer_download_release(struct layer_download *download)
{
	download->layers->reserved -= download->reserved;
	download->reserved = 0;
	jail_close(&download->spool);
}

/* Writes all into a pipe that does not block; a stop ends it. -1: nobody reads, or stopped. */
static int write_pipe(const struct layers *layers, int fd, const char *data, size_t length)
{
	while (length) {
		ssize_t written = write(fd, data, length);
		if (written > 0) {
			data += written;
			length -= (size_t)written;
		} else if (errno == EAGAIN) {
			struct pollfd ready[] = { { .fd = fd, .events = POLLOUT },
						  { .fd = layers->transport->stop, .events = POLLIN } };
			poll(ready, 2, -1);
			if (layers_stopped(layers))
				return -1;
		} else if (errno != EINTR) {
			return -1;
		}
	}
	return 0;
}

/* -1: there is no room. */
static int write_spool(int fd, const char *data, size_t length, unsigned long long position)
{
	while (length) {
		ssize_t written = pwrite(fd, data, length, (off_t)position);
		if (written < 0 && errno == EINTR)
			continue;
		if (written <= 0)
			return -1;
		data += written;
		length -= (size_t)written;
		position += (unsigned long long)written;
	}
	return 0;
}

int layer_download_deliver(void *context, const char *data, size_t length)
{
	struct layer_download *download = context;
	struct layers *layers = download->layers;

	layers_lock(layers);
	if (!download->direct) {
		download->writing = true;
		layers_unlock(layers);
		int full = write_spool(download->spool, data, length, download->spooled);
		layers_lock(layers);
		download->writing = false;
		if (!full)
			download->spooled += length;
		layers_changed(layers);
		if (!full) {
			bool gone = download->gone;
			layers_unlock(layers);
			return gone;
		}
		download->kept = false;
		/* Somebody reads it: once all of the spool is read, these bytes and the rest need no room. Else it comes again
		 * in its turn: a thread that waited for that could be the one that the turn before it needs. */
		download->given_up = !download->opened;
		while (download->opened && !download->direct && !download->gone && !layers_stopped(layers))
			layers_wait(layers);
	}
	bool go = download->direct && !download->gone;
	layers_unlock(layers);
	return go ? write_pipe(layers, download->pipe, data, length) : -1;
}

/* The spool's bytes from `offset` to `end`, into the pipe. */
static int pump_part(const struct layer_download *download, unsigned long long offset, unsigned long long end, char *block)
{
	while (offset < end) {
		size_t wanted = end - offset < READ_BLOCK ? (size_t)(end - offset) : READ_BLOCK;
		ssize_t got = pread(download->spool, block, wanted, (off_t)offset);
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0 || write_pipe(download->layers, download->pipe, block, (size_t)got))
			return -1;
		offset += (unsigned long long)got;
	}
	return 0;
}

void *layer_download_pump(void *context)
{
	struct layer_download *download = context;
	struct layers *layers = download->layers;
	scoped_free char *block = malloc(READ_BLOCK);
	unsigned long long offset = 0;

	layer_download_block_signals();
	layers_lock(layers);
	while (block && !layers_stopped(layers)) {
		unsigned long long end = download->spooled;
		bool ended = download->state == DOWNLOAD_DONE || download->state == DOWNLOAD_FAILED;
		if (offset < end) {
			layers_unlock(layers);
			int failed = pump_part(download, offset, end, block);
			layers_lock(layers);
			if (failed)
				break;
			offset = end;
		} else if (ended) {
			break;
		} else if (!download->writing && !download->kept && download->state == DOWNLOAD_RUNNING) {
			download->direct = true;
			layer_download_release(download);
			layers_changed(layers);
			layers_unlock(layers);
			return NULL;
		} else {
			layers_wait(layers);
		}
	}
	download->gone = true;
	/* Whoever fetches writes to the spool, never to the pipe: it is ours. */
	jail_close(&download->pipe);
	if (download->state == DOWNLOAD_DONE || download->state == DOWNLOAD_FAILED)
		layer_download_release(download);
	layers_changed(layers);
	layers_unlock(layers);
	return NULL;
}
