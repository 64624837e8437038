/* SPDX-License-Identifier: Apache-2.0 */
/* Reads credentials from docker's config.json and podman's auth.json. authorization.c and credential_search.c call it. */
#define _GNU_SOURCE
#include "auth_file.h"

#include <errno.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <unistd.h>

#include "native/base/scoped.h"
#include "native/base/program.h"
#include "json.h"
#include "password.h"

char *base64_encode(const char *text, size_t length)
{
	char *out = malloc(4 * (length / 3 + 1) + 1);

	if (!out)
		return text_copy("", 0);
	EVP_EncodeBlock((unsigned char *)out, (const unsigned char *)text, (int)length);
	return out;
}

char *base64_decode(const char *text)
{
	size_t length = strlen(text), padding = 0;

	if (!length || length % 4 || length > 65536)
		return NULL;
	while (padding < 2 && text[length - 1 - padding] == '=')
		padding++;
	char *out = malloc(length / 4 * 3 + 1);
	int size = out ? EVP_DecodeBlock((unsigned char *)out, (const unsigned char *)text, (int)length) : -1;
	if (size < (int)padding) {
		free(out);
		return NULL;
	}
	out[(size_t)size - padding] = '\0';
	return out;
}

static bool set_credential(struct credential *credential, const char *user, const char *secret, char *source)
{
	credential->username = text_copy(user, strlen(user));
	credential->secret = text_copy(secret, strlen(secret));
	credential->source = source;
	return true;
}

static bool of_entry(struct credential *credential, const struct credential_request *request, const json_t *entry,
		     const char *path, const char *key)
{
	const char *token = json_string_value(json_object_get(entry, "identitytoken"));
	const char *auth = json_string_value(json_object_get(entry, "auth"));
	const char *user = json_string_value(json_object_get(entry, "username"));
	const char *password = json_string_value(json_object_get(entry, "password"));
	scoped_free char *pair = auth ? base64_decode(auth) : NULL;
	size_t length = pair ? strlen(pair) : 0;
	char *colon = pair ? strchr(pair, ':') : NULL;

	if (token && *token) {
		set_credential(credential, "", token, text_format("%s, key %s", path, key));
		return credential->identity_token = true;
	}
	if (colon && colon > pair) {
		*colon = '\0';
		user = pair;
		password = colon + 1;
	} else if (auth && *auth) {
		credential_remark(credential, "auth of %s is not the base64 of USER:PASSWORD", key);
	}
	bool found = user && *user && password && *password && credential_is_for(credential, request, user) &&
		     set_credential(credential, user, password, text_format("%s, key %s", path, key));
	if (pair)
		explicit_bzero(pair, length);
	return found;
}

/* Asks `docker-credential-NAME get`, which reads the host and prints one JSON object. */
static bool of_helper(struct credential *credential, const struct credential_request *request, const char *name,
		      const char *source)
{
	scoped_free char *program = text_format("docker-credential-%s", name);
	bool hub = !strcmp(request->host, "docker.io");
	const char *asked = hub ? "https://index.docker.io/v1/" : request->host;
	scoped_buffer output = { 0 };
	scoped_fd input = memfd_create("host", MFD_CLOEXEC);
	struct jail_error err;

	credential_place(credential, "%s of %s", program, source);
	if (strchr(name, '/')) {
		credential_remark(credential, "no name of a helper");
		return false;
	}
	if (input < 0 || text_write(input, asked, strlen(asked)) || text_write(input, "\n", 1) || lseek(input, 0, SEEK_SET))
		return false;
	char get[] = "get", *words[] = { program, get, NULL };
	const struct program run = { .arguments = words, .output = &output, .input = input,
				     .seconds = credential_patience(request), .most = PASSWORD_OUTPUT_MOST };
	int status = program_run(&run, &err);
	if (status < 0) {
		credential_remark(credential, "%s%s", err.message, err.number == ETIMEDOUT ? " (ENROOT_CONNECT_TIMEOUT)" : "");
		return false;
	}
	scoped_json *answer = status || !output.length ? NULL : json_loadb(output.text, output.length, 0, NULL);
	const char *user = json_string_value(json_object_get(answer, "Username"));
	const char *secret = json_string_value(json_object_get(answer, "Secret"));
	if (!secret || !*secret || !user) {
		/* Its complaint; never what a helper printed that succeeded. */
		credential_remark(credential, "%.200s", status && output.length ? output.text : "no credentials");
		return false;
	}
	bool token = !*user || !strcmp(user, "<token>");
	if (!token && !credential_is_for(credential, request, user))
		return false;
	set_credential(credential, token ? "" : user, secret, text_format("%s (%s)", program, source));
	credential->identity_token = token;
	return true;
}

/* Keys of `auths` that concern the repository, the most specific first. */
static bool of_auths(struct credential *credential, const struct credential_request *request, const json_t *auths,
		     const char *path, const char *host)
{
	/* As docker login of old wrote them. */
	static const char *const old[] = { "", "/", "/v1/", "/v2/", "/v1", "/v2" };
	scoped_free char *key = text_format("%s/%s", host, request->path);
	const json_t *entry;

	for (;;) {
		if ((entry = json_object_get(auths, key)) && of_entry(credential, request, entry, path, key))
			return true;
		char *slash = strrchr(key, '/');
		if (!slash)
			break;
		*slash = '\0';
	}
	for (size_t i = 0; i < sizeof(old) / sizeof(old[0]); i++) {
		/* docker keeps a plain registry's scheme as well. */
		scoped_free char *address = text_format("https://%s%s", host, old[i]), *plain = text_format("http://%s%s", host, old[i]);
		if ((entry = json_object_get(auths, address)) && of_entry(credential, request, entry, path, address))
			return true;
		if ((entry = json_object_get(auths, plain)) && of_entry(credential, request, entry, path, plain))
			return true;
	}
	return false;
}

bool auth_file_find(struct credential *credential, const struct credential_request *request, const char *path,
		    const char *text)
{
	json_error_t cause;
	scoped_json *data = json_loads(text, 0, &cause);
	const char *own[5], *helper = NULL, *store;

	if (!json_is_object(data)) {
		credential_remark(credential, "line %d: %s", data ? 1 : cause.line, data ? "no JSON object" : "no valid JSON");
		return false;
	}
	for (const char *const *host = credential_hosts(request->host, own); *host && !helper; host++)
		helper = json_string_value(json_object_get(json_object_get(data, "credHelpers"), *host));
	if (helper) {
		scoped_free char *source = text_format("%s (credHelpers)", path);
		if (of_helper(credential, request, helper, source))
			return true;
	}
	for (const char *const *host = credential_hosts(request->host, own); *host; host++)
		if (of_auths(credential, request, json_object_get(data, "auths"), path, *host))
			return true;
	/* docker writes an empty entry into `auths` for what its store holds; a file with both, as login of podman leaves it,
	 * prefers what stands in it. */
	store = json_string_value(json_object_get(data, "credsStore"));
	if (!store || !*store || helper)
		return false;
	scoped_free char *source = text_format("%s (credsStore)", path);
	return of_helper(credential, request, store, source);
}
