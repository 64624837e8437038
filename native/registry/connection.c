/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the certificate authorities and the proxy for connecting to a host, and explains failures to connect.
 * http.c calls it. */
#define _GNU_SOURCE
#include "connection.h"

#include <dirent.h>
#include <fcntl.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "native/base/scoped.h"
#include "native/base/version.h"
#include "internal_address.h"

#define MAX_AUTHORITIES (4 * 1024 * 1024)

static void free_url(CURLU **parts)
{
	curl_url_cleanup(*parts);
}

/* "host" or "host:port" as it stands in the URL, which the caller frees; or NULL. */
static char *host_of(const char *url)
{
	__attribute__((cleanup(free_url))) CURLU *parts = curl_url();
	char *host = NULL, *port = NULL, *both = NULL;

	if (!parts || curl_url_set(parts, CURLUPART_URL, url, 0) || curl_url_get(parts, CURLUPART_HOST, &host, 0))
		return NULL;
	curl_url_get(parts, CURLUPART_PORT, &port, 0);
	both = text_format("%s%s%s", host, port ? ":" : "", port ? port : "");
	curl_free(host);
	curl_free(port);
	return both;
}

/* Whether OpenSSL finds certificates by their hash there. It reads those that it needs then, and not 150 of them: 20 ms
 * less for each connection. */
static bool is_hashed(const char *folder)
{
	glob_t found;
	scoped_free char *pattern = text_format("%s/????????.[0-9]", folder);
	bool any = !glob(pattern, GLOB_NOSORT, NULL, &found) && found.gl_pathc;

	globfree(&found);
	return any;
}

static void system_authorities(CURL *easy, const struct settings *settings)
{
	const char *file = settings_get(settings, "SSL_CERT_FILE"), *folder = settings_get(settings, "SSL_CERT_DIR");
	const curl_version_info_data *info = curl_version_info(CURLVERSION_NOW);

	if (*file || *folder) {
		curl_easy_setopt(easy, CURLOPT_CAINFO, *file ? file : NULL);
		curl_easy_setopt(easy, CURLOPT_CAPATH, *folder ? folder : NULL);
	} else if (info->age >= CURLVERSION_SEVENTH && info->capath && is_hashed(info->capath)) {
		curl_easy_setopt(easy, CURLOPT_CAINFO, NULL);
		curl_easy_setopt(easy, CURLOPT_CAPATH, info->capath);
	}
}

/* containers-certs.d(5): HOST/NAME.crt are authorities besides the machine's, NAME.cert with NAME.key is shown. */
static int host_certificates(CURL *easy, const struct settings *settings, const char *host, bool *shown,
			     struct registry_error *err)
{
	static const char *const folders[] = { "/etc/containers/certs.d", "/etc/docker/certs.d" };
	const curl_version_info_data *info = curl_version_info(CURLVERSION_NOW);
	const char *own = settings_get(settings, "SSL_CERT_FILE");
	scoped_buffer authorities = { 0 };

	for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++) {
		scoped_free char *folder = text_format("%s/%s", folders[i], host);
		/* The address of an IPv6 host is in brackets, which a pattern would take for its own. */
		scoped_free char *pattern = text_format("%s/%s%s/*.c*rt", folders[i], *host == '[' ? "\\" : "", host);
		glob_t found;
		if (strpbrk(host + 1, "*?[/") || access(folder, F_OK))
			continue;
		if (glob(pattern, 0, NULL, &found)) {
			globfree(&found);
			continue;
		}
		for (size_t j = 0; j < found.gl_pathc; j++) {
			const char *path = found.gl_pathv[j];
			struct jail_error cause;
			if (text_ends(path, ".cert")) {
				scoped_free char *stem = text_copy(path, strlen(path) - strlen(".cert"));
				scoped_free char *key = text_format("%s.key", stem);
				curl_easy_setopt(easy, CURLOPT_SSLCERT, path);
				curl_easy_setopt(easy, CURLOPT_SSLKEY, key);
				*shown = true;
			} else if (text_ends(path, ".crt")) {
				scoped_free char *text = text_read(AT_FDCWD, path, MAX_AUTHORITIES, NULL, &cause);
				if (!text) {
					globfree(&found);
					return registry_fail_jail(err, REGISTRY_FAULT_CONFIGURATION, &cause);
				}
				text_append_string(&authorities, text);
				text_append_string(&authorities, "\n");
			}
		}
		globfree(&found);
	}
	if (!authorities.length)
		return 0;
	/* The library takes one file or one block. */
	const char *all = *own ? own : info->age >= CURLVERSION_SEVENTH ? info->cainfo : NULL;
	struct jail_error ignored;
	scoped_free char *machine = all ? text_read(AT_FDCWD, all, MAX_AUTHORITIES, NULL, &ignored) : NULL;
	if (machine)
		text_append_string(&authorities, machine);
	struct curl_blob blob = { .data = authorities.text, .len = authorities.length, .flags = CURL_BLOB_COPY };
	curl_easy_setopt(easy, CURLOPT_CAINFO_BLOB, &blob);
	return 0;
}

static void proxies(CURL *easy, const struct settings *settings, const char *url, const char *host)
{
	const char *proxy = settings_get(settings, text_starts(url, "https:") ? "https_proxy" : "http_proxy");
	const char *without = settings_get(settings, "no_proxy");

	if (!*proxy)
		proxy = settings_get(settings, "all_proxy");
	/* The library reads those of the environment itself, HTTPS_PROXY and NO_PROXY too; what stands in enroot.conf is not
	 * there. */
	if (address_is_loopback(host))
		curl_easy_setopt(easy, CURLOPT_PROXY, "");
	else if (*proxy)
		curl_easy_setopt(easy, CURLOPT_PROXY, proxy);
	if (*without)
		curl_easy_setopt(easy, CURLOPT_NOPROXY, without);
}

int connection_prepare(CURL *easy, const struct transport *transport, const char *url,
		       const struct http_request *request, bool *certificate, struct registry_error *err)
{
	scoped_free char *host = host_of(url);

	if (!host)
		return registry_fail(err, REGISTRY_FAULT_SERVER, "%s: could not %s: \"%.100s\" is no web address",
				     request->host, request->doing, url);
#if LIBCURL_VERSION_NUM >= 0x075500
	curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
#else
	curl_easy_setopt(easy, CURLOPT_PROTOCOLS, CURLPROTO_HTTP | CURLPROTO_HTTPS);
#endif
	/* One connection for one layer: its flow control costs HTTP/2 half of the speed and gives nothing. */
	curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
	curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(easy, CURLOPT_NETRC, (long)CURL_NETRC_IGNORED);
	curl_easy_setopt(easy, CURLOPT_USERAGENT, "enroot/" ENROOT_VERSION " (cellblock)");
	curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT, transport->connect_timeout_s);
	proxies(easy, transport->settings, url, host);
	if (!text_starts(url, "https:"))
		return 0;
	if (request->insecure) {
		curl_easy_setopt(easy, CURLOPT_SSL_VERIFYPEER, 0L);
		curl_easy_setopt(easy, CURLOPT_SSL_VERIFYHOST, 0L);
		return 0;
	}
	system_authorities(easy, transport->settings);
	return host_certificates(easy, transport->settings, host, certificate, err);
}

static bool speaks_plain_http(CURLcode result, const char *said)
{
	/* OpenSSL 3.0 says the first, 3.2 the second. */
	return result == CURLE_SSL_CONNECT_ERROR &&
	       (strcasestr(said, "wrong version number") || strcasestr(said, "packet length too long") ||
		strcasestr(said, "record layer failure") || strcasestr(said, "http request"));
}

static bool lacks_authorities(const char *said)
{
	const curl_version_info_data *info = curl_version_info(CURLVERSION_NOW);

	return info->age >= CURLVERSION_SEVENTH && info->cainfo && strstr(said, info->cainfo) && access(info->cainfo, R_OK);
}

int connection_failed(CURL *easy, CURLcode result, const char *said, const struct http_request *request,
		      struct registry_error *err)
{
	double connected = 0;
	const char *text = *said ? said : curl_easy_strerror(result);
	char *url = NULL;

	curl_easy_getinfo(easy, CURLINFO_CONNECT_TIME, &connected);
	curl_easy_getinfo(easy, CURLINFO_EFFECTIVE_URL, &url);
	scoped_free char *asked = url ? host_of(url) : NULL;
	/* After a redirect, and at token servers and mirrors, it is another. */
	bool other = asked && strcmp(asked, request->host);
	scoped_free char *start = text_format("%s: could not %s%s%s", request->host, request->doing, other ? ": " : "",
					      other ? asked : "");

	switch (result) {
	case CURLE_COULDNT_RESOLVE_HOST:
		registry_fail(err, REGISTRY_FAULT_UNREACHABLE, "%s: no host of this name is known: %s", start, text);
		return registry_hint(err, "check the name, and name resolution on this node (getent hosts %s)",
				     asked ? asked : request->host);
	case CURLE_COULDNT_RESOLVE_PROXY:
		registry_fail(err, REGISTRY_FAULT_UNREACHABLE, "%s: the proxy's name is not known: %s", start, text);
		return registry_hint(err, "correct https_proxy, http_proxy or all_proxy, or put the registry into no_proxy");
	case CURLE_PEER_FAILED_VERIFICATION:
		registry_fail(err, REGISTRY_FAULT_TLS, "%s: its certificate is not trusted: %s", start, text);
		return registry_hint(err, "put its authority into /etc/containers/certs.d/%s/ca.crt or name it in SSL_CERT_FILE; "
				     "those of the web come with ca-certificates; insecure = true in registries.conf takes any",
				     asked ? asked : request->host);
	case CURLE_SSL_CACERT_BADFILE:
		/* A small machine. The library does not even begin then, and a registry on loopback may need none. */
		if (lacks_authorities(said)) {
			registry_fail(err, REGISTRY_FAULT_TLS, "%s: this machine knows no authority of certificates: %s", start, text);
			return registry_hint(err, "install ca-certificates, or name a file in SSL_CERT_FILE");
		}
		/* fall through */
	case CURLE_SSL_CERTPROBLEM:
		registry_fail(err, REGISTRY_FAULT_CONFIGURATION, "%s: a file of certificates cannot be used: %s", start, text);
		return registry_hint(err, "look at SSL_CERT_FILE, SSL_CERT_DIR and /etc/containers/certs.d: they must be PEM");
	default:
		break;
	}
	if (speaks_plain_http(result, said)) {
		registry_fail(err, REGISTRY_FAULT_TLS, "%s: it speaks plain http, not TLS", start);
		return registry_hint(err, "if everybody on the way there can be trusted: insecure = true for it in "
				     "registries.conf, or ENROOT_ALLOW_HTTP=yes for all");
	}
	if (result == CURLE_COULDNT_CONNECT || (result == CURLE_OPERATION_TIMEDOUT && connected <= 0)) {
		registry_fail(err, REGISTRY_FAULT_UNREACHABLE, "%s: no connection: %s", start, text);
		return registry_hint(err, "check the registry's name, that it runs, and the network (https_proxy, no_proxy)");
	}
	registry_fail(err, REGISTRY_FAULT_LOST, "%s: the connection broke: %s", start, text);
	return registry_hint(err, "run this again");
}
