/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes the parsers of single lines from users and registries: URIs, .credentials, WWW-Authenticate. The first byte
 * says which. Any bytes are read or refused, and never a crash. */
#include <string.h>

#include "native/testing/fuzz.h"
#include "native/base/text.h"
#include "native/registry/challenge.h"
#include "native/registry/manifest.h"
#include "native/registry/netrc.h"
#include "native/registry/platform.h"
#include "native/registry/uri.h"

static void uri(const char *text)
{
	struct registry_uri uri;
	struct registry_error err = { 0 };
	char name[512];

	if (registry_uri_parse(&uri, text, &err)) {
		MUST(err.fault == REGISTRY_FAULT_USAGE && err.message[0] && err.hint[0]);
		MUST(!strchr(err.message, '\n'));
		return;
	}
	/* It becomes a part of addresses and of file names. */
	MUST(uri.host[0] && !strpbrk(uri.host, "/@#? \n%"));
	MUST(uri.path[0] != '/' && !strstr(uri.path, "..") && !strpbrk(uri.path, "@#? \n%:"));
	MUST(uri.tag[0] || uri.digest[0]);
	MUST(!uri.digest[0] || manifest_is_digest(uri.digest));
	registry_uri_file(&uri, name);
	MUST(!strchr(name, '/') && name[0] != '.');
}

static void credentials(const char *text)
{
	struct netrc_entry entry;
	struct jail_error err = { 0 };
	int found = netrc_find(&entry, text, "h", strlen(text) % 2 ? "u" : NULL, &err);

	if (found < 0) {
		must_explain(&err);
		MUST(err.line > 0);
	}
	if (found > 0)
		MUST(entry.line > 0);
	netrc_entry_free(&entry);
}

static void challenge(const char *text)
{
	struct challenge found;

	challenge_parse(&found, text);
	MUST(strlen(found.realm) < sizeof(found.realm) && strlen(found.service) < sizeof(found.service));
	MUST(found.scheme != CHALLENGE_NONE || !found.realm[0]);
}

static void platform(const char *text)
{
	struct platform found;

	if (!platform_of(&found, text))
		MUST(found.architecture[0]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static void (*const targets[])(const char *) = { uri, credentials, challenge, platform };

	if (!size)
		return 0;
	char *text = text_copy((const char *)data + 1, size - 1);
	targets[data[0] % 4](text);
	free(text);
	return 0;
}
