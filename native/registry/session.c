/* SPDX-License-Identifier: Apache-2.0 */
/* Opens an image of a registry: finds the server that has it, and reads its manifest and configuration.
 * enroot/importing calls it. */
#define _GNU_SOURCE
#include "session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "native/base/scoped.h"
#include "manifest.h"
#include "registries.h"

static int find_endpoints(struct registry *registry, struct registry_error *err)
{
	struct registries *registries = registries_new();
	struct registries_answer places;
	int result = !registries ? registry_fail(err, REGISTRY_FAULT_SYSTEM, "no memory") :
		     registries_load(registries, err) || registries_find(registries, &registry->uri, &places, err);

	registries_free(registries);
	for (unsigned i = 0; !result && i < places.n; i++) {
		struct endpoint *endpoint = &registry->endpoints[registry->n_endpoints++];
		const struct registries_place *place = &places.places[i];
		memcpy(endpoint->host, place->host, sizeof(place->host));
		memcpy(endpoint->path, place->path, sizeof(place->path));
		endpoint->insecure = place->insecure;
		endpoint->is_mirror = place->is_mirror;
		/* A mirror has users of its own. */
		endpoint_begin(endpoint, &registry->transport, place->is_mirror ? "" : registry->uri.user);
	}
	return result;
}

struct registry *registry_open(const struct settings *settings, const struct registry_uri *uri, const char *architecture,
			       const struct registry_documents *documents, struct registry_error *err)
{
	struct registry *registry = calloc(1, sizeof(*registry));

	if (!registry) {
		registry_fail(err, REGISTRY_FAULT_SYSTEM, "no memory");
		return NULL;
	}
	registry->settings = settings;
	registry->uri = *uri;
	registry->documents = documents;
	snprintf(registry->name, sizeof(registry->name), "%s/%s%s%s%s%s", uri->host, uri->path, uri->tag[0] ? ":" : "", uri->tag,
		 uri->digest[0] ? "@" : "", uri->digest);
	transport_begin(&registry->transport, settings);
	bool is_platform = !platform_of(&registry->platform, architecture);
	snprintf(registry->platform_text, sizeof(registry->platform_text), "linux/%s%s%s", registry->platform.architecture,
		 registry->platform.variant[0] ? "/" : "", registry->platform.variant);
	if (!is_platform) {
		registry_fail(err, REGISTRY_FAULT_USAGE, "\"%.100s\" is no architecture", architecture);
		registry_hint(err, "name one as images do: amd64, arm64, arm/v7, ppc64le");
	} else if (!find_endpoints(registry, err) && (registry->http = http_open(&registry->transport, err))) {
		return registry;
	}
	registry_close(registry);
	return NULL;
}

void registry_close(struct registry *registry)
{
	if (!registry)
		return;
	registry_stop(registry);
	layers_end(registry->layers);
	http_close(registry->http);
	for (unsigned i = 0; i < registry->n_endpoints; i++)
		endpoint_end(&registry->endpoints[i]);
	transport_end(&registry->transport);
	free(registry);
}

void registry_stop(struct registry *registry)
{
	transport_stop(&registry->transport);
}

/* Asks one place after the other, the one that answered last first. */
static int ask_endpoints(struct registry *registry, const struct endpoint_request *request, struct http_answer *answer,
			 struct registry_error *err)
{
	scoped_buffer mirrors = { 0 };

	*answer = (struct http_answer){ .retry_after_s = -1 };
	for (unsigned n = 0; n < registry->n_endpoints; n++) {
		unsigned i = (registry->chosen + n) % registry->n_endpoints;
		struct endpoint *endpoint = &registry->endpoints[i];
		http_answer_free(answer);
		if (!endpoint_retry(endpoint, registry->http, request, answer, err)) {
			registry->chosen = i;
			return 0;
		}
		if (err->fault == REGISTRY_FAULT_STOPPED)
			return -1;
		if (endpoint->is_mirror) {
			text_append_string(&mirrors, "\n  its mirror ");
			text_append_string(&mirrors, err->message);
		}
	}
	/* Most want to know why the registry itself refused; why a mirror was no help comes below. */
	size_t used = strlen(err->message);
	if (mirrors.length)
		snprintf(err->message + used, sizeof(err->message) - used, "%s", mirrors.text);
	return -1;
}

static int wrong_digest(const struct registry *registry, const char *what, const char *wanted, const char *found,
			struct registry_error *err)
{
	registry_fail(err, REGISTRY_FAULT_DIGEST, "%s: %s %s came with digest %s",
		      registry->endpoints[registry->chosen].host, what, wanted, found);
	return registry_hint(err, "run this again; when it stays so, the registry's copy is damaged: have it pushed again");
}

static char *known(struct registry *registry, const char *digest, size_t *length)
{
	const struct registry_documents *documents = registry->documents;
	bool anonymous = false;
	char *text = documents && documents->load ? documents->load(documents->context, digest, length, &anonymous) : NULL;
	char found[72];

	if (!text)
		return NULL;
	manifest_digest(text, *length, found);
	if (!strcmp(found, digest)) {
		registry->anonymous &= anonymous;
		return text;
	}
	free(text);
	return NULL;
}

static void keep(struct registry *registry, const char *digest, const struct http_answer *answer)
{
	const struct registry_documents *documents = registry->documents;
	const char *text = answer->body.text ? answer->body.text : "";

	registry->anonymous &= !answer->identified;
	if (documents && documents->keep)
		documents->keep(documents->context, digest, text, answer->body.length, !answer->identified);
}

/* Of an image or a tag that is not there: which of the two, where the registry says it. What it said stays, below. */
static void explain_missing(const struct registry *registry, struct registry_error *err)
{
	const struct registry_uri *uri = &registry->uri;
	char said[sizeof(err->message)];
	int length = 0;

	if (err->fault != REGISTRY_FAULT_MISSING)
		return;
	memcpy(said, err->message, sizeof(said));
	if (!strcmp(err->code, "NAME_UNKNOWN")) {
		length = snprintf(err->message, sizeof(err->message), "%s has no image %s\n  ", uri->host, uri->path);
		registry_hint(err, "check the name; an image that is not public is hidden from who does not log in");
	} else if (!strcmp(err->code, "MANIFEST_UNKNOWN")) {
		/* Some say it of names that they do not know, too. */
		length = snprintf(err->message, sizeof(err->message), "%s has no %s: the %s is not there, or no image of this name\n  ",
				  uri->host, registry->name + strlen(uri->host) + 1, uri->digest[0] ? "digest" : "tag");
		registry_hint(err, "check the name and the tag; the tags that there are: skopeo list-tags docker://%s/%s", uri->host,
			      uri->path);
	}
	/* A message that is too long is cut. */
	if (length > 0 && (size_t)length < sizeof(err->message))
		memcpy(err->message + length, said, sizeof(said) - (size_t)length);
	err->message[sizeof(err->message) - 1] = '\0';
}

char *session_document(struct registry *registry, const char *what, const char *digest, size_t limit, size_t *length,
		       char media_type[128], struct registry_error *err)
{
	bool manifest = !strcmp(what, "manifest");
	scoped_free char *path = text_format("%s/%s", manifest ? "manifests" : "blobs", digest);
	scoped_free char *doing = text_format("get the %s of %s", what, registry->name);
	const struct endpoint_request request = {
		.method = "GET", .what = path, .doing = doing, .accept = manifest ? MANIFEST_ACCEPT : NULL, .limit = limit,
	};
	char *text = known(registry, digest, length), found[72];
	scoped_answer answer = { 0 };

	media_type[0] = '\0';
	if (text)
		return text;
	if (ask_endpoints(registry, &request, &answer, err)) {
		if (manifest)
			explain_missing(registry, err);
		return NULL;
	}
	*length = answer.body.length;
	manifest_digest(answer.body.text ? answer.body.text : "", *length, found);
	if (strcmp(found, digest)) {
		wrong_digest(registry, what, digest, found, err);
		return NULL;
	}
	memcpy(media_type, answer.media_type, sizeof(answer.media_type));
	keep(registry, digest, &answer);
	return text_copy(answer.body.text ? answer.body.text : "", *length);
}

/* A GET of the tag: its document, and its digest. */
static char *of_tag(struct registry *registry, size_t *length, char media_type[128], struct registry_error *err)
{
	scoped_free char *path = text_format("manifests/%s", registry->uri.tag);
	scoped_free char *doing = text_format("get the manifest of %s", registry->name);
	const struct endpoint_request request = {
		.method = "GET", .what = path, .doing = doing, .accept = MANIFEST_ACCEPT, .limit = MANIFEST_LIMIT,
	};
	scoped_answer answer = { 0 };

	if (ask_endpoints(registry, &request, &answer, err)) {
		explain_missing(registry, err);
		return NULL;
	}
	const char *text = answer.body.text ? answer.body.text : "";
	*length = answer.body.length;
	memcpy(media_type, answer.media_type, sizeof(answer.media_type));
	manifest_digest(text, *length, registry->named);
	if (manifest_is_digest(answer.digest) && strcmp(answer.digest, registry->named)) {
		wrong_digest(registry, "manifest", answer.digest, registry->named, err);
		registry->named[0] = '\0';
		return NULL;
	}
	keep(registry, registry->named, &answer);
	return text_copy(text, *length);
}

/* A HEAD of the tag, which counts in no limit of downloads. Returns 0, or -1; `named` stays "" where the answer names no
 * digest. */
static int head_of_tag(struct registry *registry, char media_type[128], struct registry_error *err)
{
	scoped_free char *path = text_format("manifests/%s", registry->uri.tag);
	scoped_free char *doing = text_format("get the manifest of %s", registry->name);
	const struct endpoint_request request = {
		.method = "HEAD", .what = path, .doing = doing, .accept = MANIFEST_ACCEPT, .limit = MANIFEST_LIMIT,
	};
	scoped_answer answer = { 0 };
	size_t length;

	if (ask_endpoints(registry, &request, &answer, err)) {
		/* The answer to a HEAD has no words. */
		scoped_free char *text = err->status == 404 || err->status == 403 ? of_tag(registry, &length, media_type, err) : NULL;
		return text ? 0 : -1;
	}
	memcpy(media_type, answer.media_type, sizeof(answer.media_type));
	if (manifest_is_digest(answer.digest))
		strcpy(registry->named, answer.digest);
	return 0;
}

int registry_named(struct registry *registry, char digest[72], struct registry_error *err)
{
	char media_type[128];
	size_t length;

	if (registry->uri.digest[0])
		strcpy(registry->named, registry->uri.digest);
	else if (!registry->named[0] && head_of_tag(registry, media_type, err))
		return -1;
	/* Some name it with GET alone, or not at all. */
	if (!registry->named[0]) {
		scoped_free char *text = of_tag(registry, &length, media_type, err);
		if (!text)
			return -1;
	}
	strcpy(digest, registry->named);
	return 0;
}

const char *registry_platform(const struct registry *registry)
{
	return registry->platform_text;
}

bool registry_identified(struct registry *registry)
{
	return atomic_load(&registry->transport.identified);
}

/* To the manifest of the platform, through indexes: image->manifest, digest, named, media_type. */
static int find_manifest(struct registry *registry, struct registry_image *image, struct registry_error *err)
{
	char *text = NULL, digest[72];

	/* Where documents are kept, a HEAD tells whether this one is there. */
	if ((registry->uri.digest[0] || registry->documents) && registry_named(registry, digest, err))
		return -1;
	if (registry->named[0])
		text = session_document(registry, "manifest", registry->named, MANIFEST_LIMIT, &image->manifest_length,
					image->media_type, err);
	else
		text = of_tag(registry, &image->manifest_length, image->media_type, err);
	strcpy(image->named, registry->named);
	strcpy(image->digest, image->named);
	/* An index may lead to another. */
	for (int depth = 0; text; depth++) {
		free(image->manifest);
		image->manifest = text;
		int more = depth > 3 ? -1 : manifest_choose(text, image->manifest_length, registry->name, image->media_type,
							    &registry->platform, image->digest, err);
		if (depth > 3)
			registry_fail(err, REGISTRY_FAULT_IMAGE, "%s: its indexes lead to indexes", registry->name);
		if (more <= 0)
			return more;
		text = session_document(registry, "manifest", image->digest, MANIFEST_LIMIT, &image->manifest_length,
					image->media_type, err);
	}
	return -1;
}

int registry_resolve(struct registry *registry, struct registry_image **out, struct registry_error *err)
{
	struct registry_image *image = calloc(1, sizeof(*image));
	char ignored[128];

	*out = NULL;
	if (!image)
		return registry_fail(err, REGISTRY_FAULT_SYSTEM, "no memory");
	registry->anonymous = true;
	if (find_manifest(registry, image, err) || manifest_read(image, registry->name, err))
		goto failed;
	image->config = session_document(registry, "configuration", image->config_digest, CONFIG_LIMIT, &image->config_length,
					 ignored, err);
	if (!image->config || manifest_read_config(image, registry->name, &registry->platform, err))
		goto failed;
	image->anonymous = registry->anonymous;
	*out = image;
	return 0;
failed:
	registry_image_free(image);
	return -1;
}

int registry_digest(struct registry *registry, char digest[72], struct registry_error *err)
{
	struct registry_image image = { 0 };
	int result;

	/* Only an index has to be read. */
	if (!registry->uri.digest[0] && !registry->named[0] && head_of_tag(registry, image.media_type, err))
		return -1;
	if (registry->named[0] && manifest_is_single(image.media_type)) {
		strcpy(digest, registry->named);
		return 0;
	}
	result = find_manifest(registry, &image, err);

	free(image.manifest);
	if (!result)
		strcpy(digest, image.digest);
	return result;
}

void registry_image_free(struct registry_image *image)
{
	if (!image)
		return;
	manifest_free_layers(image);
	free(image->manifest);
	free(image->config);
	free(image);
}
