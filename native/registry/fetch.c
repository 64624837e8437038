/* SPDX-License-Identifier: Apache-2.0 */
/* Downloads one blob, and resumes when connections break. download_threads.c calls it. */
#define _GNU_SOURCE
#include "fetch.h"

#include <stdio.h>
#include <string.h>

#include "native/base/scoped.h"
#include "foreign_layer.h"

struct fetch {
	const struct fetch_request *request;
	const struct transport *transport;
	struct registry_error *err;
	unsigned long long got; /* bytes delivered */
	double begun, waited_s; /* waited: for whoever takes the bytes */
	bool failed;            /* `err` says how */
	bool identified;        /* a request that gave bytes said who asks */
};

static int receive(void *context, unsigned long long position, const char *data, size_t length)
{
	struct fetch *fetch = context;
	const struct registry_layer *layer = fetch->request->layer;
	double now = transport_now();

	if (position > fetch->got) {
		fetch->failed = true;
		return registry_fail(fetch->err, REGISTRY_FAULT_SERVER, "blob %.19s: asked from byte %llu on, it came from %llu on",
				     layer->digest, fetch->got, position);
	}
	/* An answer from the start, to a question for the rest: the registry knows no ranges. */
	unsigned long long known = fetch->got - position;
	if (known >= length)
		return 0;
	data += known;
	length -= (size_t)known;
	if (length > layer->size - fetch->got) {
		fetch->failed = true;
		registry_fail(fetch->err, REGISTRY_FAULT_DIGEST, "blob %s is longer than the %llu bytes that its manifest says",
			      layer->digest, layer->size);
		return registry_hint(fetch->err, "the registry's copy is damaged, or an attack: have the image pushed again");
	}
	if (fetch->transport->transfer_timeout_s &&
	    now - fetch->begun - fetch->waited_s > (double)fetch->transport->transfer_timeout_s) {
		fetch->failed = true;
		registry_fail(fetch->err, REGISTRY_FAULT_UNREACHABLE, "blob %.19s: %llu of %llu bytes came in %ld s", layer->digest,
			      fetch->got, layer->size, fetch->transport->transfer_timeout_s);
		return registry_hint(fetch->err, "raise ENROOT_TRANSFER_TIMEOUT, or set it to 0: no limit");
	}
	if (fetch->request->deliver(fetch->request->context, data, length))
		return -1;
	fetch->waited_s += transport_now() - now;
	fetch->got += length;
	return 0;
}

/* Why an attempt did not give all. */
static int explain(const struct fetch *fetch, const char *name, const char *from)
{
	const struct registry_layer *layer = fetch->request->layer;

	if (fetch->failed) {
		char said[2048];
		memcpy(said, fetch->err->message, sizeof(said));
		snprintf(fetch->err->message, sizeof(fetch->err->message), "%s: %.1000s", from, said);
		return -1;
	}
	/* A proxy that dies can end an answer without a sign of it. */
	registry_fail(fetch->err, REGISTRY_FAULT_LOST, "%s: layer %.19s of %s ended after %llu of %llu bytes", from,
		      layer->digest, name, fetch->got, layer->size);
	return registry_hint(fetch->err, "run this again; when it stays so, the registry's copy is damaged: have it pushed again");
}

/* Every byte that the manifest says has come. */
static bool is_whole(const struct fetch *fetch)
{
	return fetch->got && fetch->got == fetch->request->layer->size && !fetch->failed;
}

/* One attempt at one place. Returns 0: all is there. */
static int fetch_from_endpoint(struct registry *registry, struct http *http, struct endpoint *endpoint, struct fetch *fetch)
{
	const struct registry_layer *layer = fetch->request->layer;
	scoped_free char *what = text_format("blobs/%s", layer->digest);
	scoped_free char *doing = text_format("get layer %.19s of %s", layer->digest, registry->name);
	const struct endpoint_request request = {
		.method = "GET", .what = what, .doing = doing, .offset = fetch->got, .sink = receive, .context = fetch,
	};
	struct registry_error err;
	scoped_answer answer = { 0 };
	unsigned long long before = fetch->got;

	fetch->failed = false;
	int result = endpoint_decide(endpoint, http, &err) || endpoint_do(endpoint, http, &request, &answer, &err) ? -1 : 0;
	fetch->identified |= answer.identified && (!result || fetch->got > before);
	/* Whatever became of the connection then: the digest tells whether it is right, and there is no rest to ask for. */
	if (is_whole(fetch) && !(result && err.fault == REGISTRY_FAULT_STOPPED))
		return 0;
	if (result && !fetch->failed) {
		*fetch->err = err;
		return -1;
	}
	return !result && fetch->got == layer->size ? 0 : explain(fetch, registry->name, endpoint->host);
}

/* Where the image's author says that the layer is, when no registry has it. */
static int elsewhere(struct registry *registry, struct http *http, struct fetch *fetch)
{
	const struct registry_layer *layer = fetch->request->layer;
	scoped_free char *doing = text_format("get layer %.19s of %s", layer->digest, registry->name);
	const struct http_request request = {
		.method = "GET", .doing = doing, .offset = fetch->got, .sink = receive, .context = fetch,
	};

	fetch->failed = false;
	if (foreign_layer_fetch(layer, registry->endpoints[registry->chosen].base, http, &request, &fetch->identified, fetch->err) &&
	    (!is_whole(fetch) || fetch->err->fault == REGISTRY_FAULT_STOPPED))
		return fetch->failed ? explain(fetch, registry->name, "its address") : -1;
	return fetch->got == layer->size ? 0 : explain(fetch, registry->name, "its address");
}

static int fetch_all(struct registry *registry, struct http *http, struct fetch *fetch)
{
	struct registry_error *err = fetch->err;

	for (unsigned n = 0; n < registry->n_endpoints; n++) {
		struct endpoint *endpoint = &registry->endpoints[(registry->chosen + n) % registry->n_endpoints];
		struct retries retries = { .transport = &registry->transport };
		struct registry_error first = *err;
		for (;;) {
			unsigned long long before = fetch->got;
			if (!fetch_from_endpoint(registry, http, endpoint, fetch))
				return 0;
			if (err->fault == REGISTRY_FAULT_STOPPED)
				return -1;
			if (fetch->got > before)
				retries.failed = 0;
			if (retries_wait(&retries, err))
				break;
		}
		if (err->fault == REGISTRY_FAULT_STOPPED)
			return -1;
		/* The place that had the manifest knows best why. */
		if (n)
			*err = first;
	}
	if (err->fault == REGISTRY_FAULT_MISSING && *fetch->request->layer->urls)
		return elsewhere(registry, http, fetch);
	return -1;
}

int fetch_blob(struct registry *registry, struct http *http, const struct fetch_request *request, bool *anonymous,
	       struct registry_error *err)
{
	struct fetch fetch = {
		.request = request, .transport = &registry->transport, .err = err, .begun = transport_now(),
	};
	int result = fetch_all(registry, http, &fetch);

	*anonymous = !result && !fetch.identified;
	return result;
}
