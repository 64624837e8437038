/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the credentials for a registry in the places where enroot, docker, podman and skopeo keep them.
 * authorization.c calls it. */
#define _GNU_SOURCE
#include "credential_search.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "native/base/scoped.h"
#include "auth_file.h"
#include "internal_address.h"
#include "netrc.h"
#include "password.h"

#define MAX_CREDENTIALS_FILE (1024 * 1024)

/* Reads a file that may not be there. NULL, remarked, when it cannot be had. */
static char *read_place(struct credential *credential, const char *path)
{
	struct jail_error err;
	char *text = text_read(AT_FDCWD, path, MAX_CREDENTIALS_FILE, NULL, &err);

	if (!text && err.number == ENOENT)
		credential_remark(credential, "not there");
	else if (!text)
		credential_remark(credential, "cannot be read: %s", err.number ? strerrordesc_np(err.number) : err.message);
	return text;
}

/* Whether `host` has an entry that gives a password. */
static bool of_host(struct credential *credential, const struct credential_request *request, const char *path,
		    const char *text, const char *host)
{
	struct netrc_entry entry;
	struct jail_error err;
	int found = netrc_find(&entry, text, host, request->user, &err);

	if (found < 0)
		credential_remark(credential, "line %d: %s", err.line, err.message);
	if (found != 1)
		return false;
	if (!entry.password || !entry.login) {
		credential_remark(credential, "line %d, machine %s: no %s", entry.line, host, entry.login ? "password" : "login");
	} else if ((credential->secret = password_evaluate(entry.password, credential_patience(request), &err))) {
		credential->username = text_copy(entry.login, strlen(entry.login));
		credential->source = text_format("%s, line %d, machine %s", path, entry.line, host);
	} else {
		credential_remark(credential, "line %d, machine %s: %s", entry.line, host, err.message);
	}
	netrc_entry_free(&entry);
	return credential->secret != NULL;
}

/* "[::1]:5000" is "::1" there. */
static char *without_port_of(const char *host)
{
	return *host == '[' ? text_copy(host + 1, strcspn(host + 1, "]")) : text_copy(host, strcspn(host, ":"));
}

/* "docker.io" and "auth.docker.io", "registry.gitlab.com" and "gitlab.com". */
static bool is_below(const char *host, const char *domain)
{
	size_t length = strlen(host), end = strlen(domain);

	return length > end && host[length - end - 1] == '.' && text_ends(host, domain);
}

/* The token server's own entry. Which server that is, the registry says: one that names another's server gets to see what that one
 * gives, so that the two must be of one domain. */
static bool of_realm(struct credential *credential, const struct credential_request *request, const char *path, const char *text)
{
	const char *realm = request->realm_host;
	scoped_free char *host = without_port_of(request->host);
	struct netrc_entry entry;
	struct jail_error ignored;

	if (!realm || !strcmp(realm, request->host))
		return false;
	bool related = !strcmp(realm, host) || is_below(realm, host) || is_below(host, realm) ||
		       (address_is_loopback(request->host) && address_is_loopback(realm));
	if (related)
		return of_host(credential, request, path, text, realm);
	if (netrc_find(&entry, text, realm, request->user, &ignored) == 1) {
		credential_remark(credential, "line %d, machine %s: not of the domain of %s, which names it as its token server; if it is to "
				  "have this password, write it behind machine %s", entry.line, realm, request->host, request->host);
		netrc_entry_free(&entry);
	}
	return false;
}

static bool of_netrc(struct credential *credential, const struct credential_request *request)
{
	scoped_free char *path = text_format("%s/.credentials", settings_get(request->settings, "ENROOT_CONFIG_PATH"));
	const char *own[5];
	struct stat st;

	credential_place(credential, "%s", path);
	scoped_free char *text = read_place(credential, path);
	if (!text)
		return false;
	if (!stat(path, &st) && st.st_mode & 077)
		credential_remark(credential, "others may read it: chmod 600");
	for (const char *const *host = credential_hosts(request->host, own); *host; host++) {
		scoped_free char *without_port = without_port_of(*host);
		if (of_host(credential, request, path, text, *host) ||
		    (*without_port && strcmp(without_port, *host) &&
		     of_host(credential, request, path, text, without_port)))
			return true;
	}
	return of_realm(credential, request, path, text);
}

/* Frees the path. */
static bool of_auth_file(struct credential *credential, const struct credential_request *request, char *path)
{
	credential_place(credential, "%s", path);
	scoped_free char *text = read_place(credential, path);
	bool found = text && auth_file_find(credential, request, path, text);
	free(path);
	return found;
}

static char *below(const char *variable, const char *otherwise, const char *rest)
{
	const char *value = getenv(variable);

	return text_format("%s/%s", value && *value ? value : otherwise, rest);
}

void credential_find(struct credential *credential, const struct credential_request *request)
{
	const char *file = getenv("REGISTRY_AUTH_FILE"), *home = getenv("HOME");
	scoped_free char *run = text_format("/run/containers/%u", (unsigned)geteuid());
	scoped_free char *runtime = getenv("XDG_RUNTIME_DIR") ? below("XDG_RUNTIME_DIR", run, "containers") : text_copy(run, strlen(run));
	scoped_free char *config = text_format("%s/.config", home ? home : "");
	scoped_free char *docker = text_format("%s/.docker", home ? home : "");

	*credential = (struct credential){ 0 };
	if (of_netrc(credential, request))
		return;
	if (file && *file && of_auth_file(credential, request, text_copy(file, strlen(file))))
		return;
	if (of_auth_file(credential, request, text_format("%s/auth.json", runtime)))
		return;
	if (!home || of_auth_file(credential, request, below("XDG_CONFIG_HOME", config, "containers/auth.json")))
		return;
	of_auth_file(credential, request, below("DOCKER_CONFIG", docker, "config.json"));
}

void credential_free(struct credential *credential)
{
	if (credential->secret)
		explicit_bzero(credential->secret, strlen(credential->secret));
	free(credential->username);
	free(credential->secret);
	free(credential->source);
	text_buffer_free(&credential->places);
	*credential = (struct credential){ 0 };
}
