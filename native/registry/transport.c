/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps what all connections of one import share: options, the sign to stop, and the pause that a registry asked for
 * by Retry-After, which http.c reads. Files of this folder call it. */
#define _GNU_SOURCE
#include "transport.h"

#include <curl/curl.h>
#include <math.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "native/base/report.h"

/* Without ENROOT_TRANSFER_RETRIES: broken connections and short failures of a registry pass in some seconds. */
#define ATTEMPTS 6
/* A host that cannot be reached at all is more often a wrong name than a passing fault. */
#define UNREACHABLE_ATTEMPTS 2
#define FIRST_WAIT_S 0.5
#define LONGEST_WAIT_S 30.0
/* The longest that a registry may ask us to wait. Who waits for an import has a job that waits. */
#define MOST_RETRY_AFTER_S 300.0
#define MOST_CONNECTIONS 64

void transport_begin(struct transport *transport, const struct settings *settings)
{
	pthread_condattr_t monotonic;
	long connections = settings_number(settings, "ENROOT_MAX_CONNECTIONS", 10);
	long retries = settings_number(settings, "ENROOT_TRANSFER_RETRIES", 0);

	*transport = (struct transport){
		.settings = settings,
		.connect_timeout_s = settings_number(settings, "ENROOT_CONNECT_TIMEOUT", 30),
		.transfer_timeout_s = settings_number(settings, "ENROOT_TRANSFER_TIMEOUT", 0),
		.connections = connections < 1 ? 1 : connections > MOST_CONNECTIONS ? MOST_CONNECTIONS : (unsigned)connections,
		.attempts = retries ? (unsigned)retries + 1 : ATTEMPTS,
		.allow_http = settings_true(settings, "ENROOT_ALLOW_HTTP"),
		.stop = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK),
	};
	pthread_mutex_init(&transport->lock, NULL);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&transport->wake, &monotonic);
	pthread_condattr_destroy(&monotonic);
	curl_global_init(CURL_GLOBAL_ALL);
}

void transport_end(struct transport *transport)
{
	if (transport->stop >= 0)
		close(transport->stop);
	pthread_cond_destroy(&transport->wake);
	pthread_mutex_destroy(&transport->lock);
}

void transport_add(struct transport *transport, struct transport_handle *handle, void *multi)
{
	pthread_mutex_lock(&transport->lock);
	handle->multi = multi;
	handle->next = transport->handles;
	transport->handles = handle;
	pthread_mutex_unlock(&transport->lock);
}

void transport_remove(struct transport *transport, const struct transport_handle *handle)
{
	pthread_mutex_lock(&transport->lock);
	for (struct transport_handle **link = &transport->handles; *link; link = &(*link)->next)
		if (*link == handle) {
			*link = handle->next;
			break;
		}
	pthread_mutex_unlock(&transport->lock);
}

void transport_stop(struct transport *transport)
{
	atomic_store(&transport->stopped, true);
	pthread_mutex_lock(&transport->lock);
	pthread_cond_broadcast(&transport->wake);
	for (const struct transport_handle *handle = transport->handles; handle; handle = handle->next)
		curl_multi_wakeup(handle->multi);
	if (transport->stop >= 0 && eventfd_write(transport->stop, 1) < 0)
		(void)0; /* it says so already */
	pthread_mutex_unlock(&transport->lock);
}

double transport_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* With the lock held. */
static void wait_until(struct transport *transport, double end)
{
	double whole = floor(end);
	struct timespec until = { .tv_sec = (time_t)whole, .tv_nsec = (long)((end - whole) * 1e9) };

	while (!atomic_load(&transport->stopped) && transport_now() < end)
		pthread_cond_timedwait(&transport->wake, &transport->lock, &until);
}

int transport_sleep(struct transport *transport, double seconds)
{
	pthread_mutex_lock(&transport->lock);
	wait_until(transport, transport_now() + seconds);
	pthread_mutex_unlock(&transport->lock);
	return atomic_load(&transport->stopped) ? -1 : 0;
}

int transport_pause(struct transport *transport)
{
	pthread_mutex_lock(&transport->lock);
	wait_until(transport, transport->not_before);
	pthread_mutex_unlock(&transport->lock);
	return atomic_load(&transport->stopped) ? -1 : 0;
}

/* From half of `longest` to all of it: clients that failed together do not come back together. */
static double jittered(double longest)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return longest * (0.5 + (double)(now.tv_nsec / 1000 % 1000) / 2000);
}

int retries_wait(struct retries *retries, struct registry_error *err)
{
	struct transport *transport = retries->transport;
	bool unreachable = err->fault == REGISTRY_FAULT_UNREACHABLE;
	unsigned limit = transport->attempts;
	double longest = FIRST_WAIT_S, seconds;

	if (!unreachable && err->fault != REGISTRY_FAULT_LOST && err->fault != REGISTRY_FAULT_LIMITED &&
	    !(err->fault == REGISTRY_FAULT_SERVER && (err->status >= 500 || err->status == 408 || err->status == 425)))
		return -1;
	if (unreachable && transport->attempts == ATTEMPTS)
		limit = UNREACHABLE_ATTEMPTS;
	retries->failed++;
	if (retries->failed >= limit || err->retry_after_s > MOST_RETRY_AFTER_S)
		return -1;
	for (unsigned i = 1; i < retries->failed && longest < LONGEST_WAIT_S; i++)
		longest *= 2;
	seconds = jittered(longest < LONGEST_WAIT_S ? longest : LONGEST_WAIT_S);
	if (err->retry_after_s >= 0)
		seconds = err->retry_after_s + seconds / 4;
	if (err->fault == REGISTRY_FAULT_LIMITED) {
		pthread_mutex_lock(&transport->lock);
		if (transport->not_before < transport_now() + seconds)
			transport->not_before = transport_now() + seconds;
		pthread_mutex_unlock(&transport->lock);
	}
	if (seconds >= 1)
		report_warning("%s; trying again in %.0f s", err->message, seconds);
	if (transport_sleep(transport, seconds))
		return registry_fail(err, REGISTRY_FAULT_STOPPED, "stopped");
	return 0;
}
