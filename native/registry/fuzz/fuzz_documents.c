/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes the parsers of documents: registries.conf, manifests, configurations, auth files, a registry's errors. The
 * first byte says which. Any bytes are read or refused, and never a crash. */
#include <string.h>

#include "native/testing/fuzz.h"
#include "native/registry/error_response.h"
#include "native/registry/auth_file.h"
#include "native/registry/credential_search.h"
#include "native/registry/manifest.h"
#include "native/registry/registries.h"

static void configuration(const char *text, size_t size)
{
	struct registries *registries = registries_new();
	struct registries_answer answer;
	struct registry_error err = { 0 };
	struct registry_uri uri;

	(void)size;
	MUST(!registry_uri_parse(&uri, "docker://a.example/b/c:1", &err));
	if (registries_add(registries, text, "f", &err))
		MUST(!strncmp(err.message, "f:", 2) && !strchr(err.message, '\n'));
	else if (!registries_find(registries, &uri, &answer, &err))
		MUST(answer.n && answer.places[answer.n - 1].host[0] && !answer.places[answer.n - 1].is_mirror);
	else
		MUST(err.message[0]);
	registries_free(registries);
}

static void index_or_manifest(const char *text, size_t size)
{
	const struct platform platform = { .architecture = "amd64" };
	struct registry_image image = { .manifest = (char *)text, .manifest_length = size };
	struct registry_error err = { 0 };
	char digest[72];

	int found = manifest_choose(text, size, "n", "", &platform, digest, &err);
	MUST(found >= 0 || err.message[0]);
	MUST(found != 1 || manifest_is_digest(digest));
	if (!manifest_read(&image, "n", &err)) {
		MUST(manifest_is_digest(image.config_digest));
		for (unsigned i = 0; i < image.n_layers; i++)
			MUST(manifest_is_digest(image.layers[i].digest));
	}
	manifest_free_layers(&image);
}

static void image_configuration(const char *text, size_t size)
{
	const struct platform platform = { .architecture = "amd64", .asked = true };
	struct registry_layer layers[2] = { 0 };
	struct registry_image image = { .config = (char *)text, .config_length = size, .layers = layers, .n_layers = 2 };
	struct registry_error err = { 0 };

	if (!manifest_read_config(&image, "n", &platform, &err))
		MUST(manifest_is_digest(layers[0].diff_id) && manifest_is_digest(layers[1].diff_id));
	else
		MUST(err.message[0] && !strchr(err.message, '\n'));
}

static void auth_file(const char *text, size_t size)
{
	const struct credential_request request = { .host = "h.example", .path = "a/b", .user = "" };
	struct credential credential = { 0 };

	(void)size;
	/* No programs are run here. */
	if (strstr(text, "cred") || strchr(text, '\\'))
		return;
	credential_place(&credential, "f");
	if (auth_file_find(&credential, &request, "f", text))
		MUST(credential.secret && credential.secret[0] && credential.username && credential.source);
	credential_free(&credential);
}

static void refusal(const char *text, size_t size)
{
	struct http_answer answer = { .status = 400 + (int)(size % 120), .retry_after_s = (double)(size % 3) - 1 };
	struct registry_error err = { 0 };

	text_append(&answer.body, text, size);
	MUST(error_response_fail("h", "do it", &answer, &err) == -1);
	MUST(err.status == answer.status && !strpbrk(err.message, "\n\033"));
	text_buffer_free(&answer.body);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static void (*const targets[])(const char *, size_t) = { configuration, index_or_manifest, image_configuration,
								 auth_file, refusal };

	if (!size)
		return 0;
	char *text = text_copy((const char *)data + 1, size - 1);
	targets[data[0] % 5](text, size - 1);
	free(text);
	return 0;
}
