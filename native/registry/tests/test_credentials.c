/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the parsing of the file .credentials and of a 401's WWW-Authenticate. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "native/base/scoped.h"
#include "native/testing/check.h"
#include "native/registry/auth_file.h"
#include "native/registry/challenge.h"
#include "native/registry/credential_search.h"
#include "native/registry/netrc.h"
#include "native/registry/password.h"

static void check_entry(const char *text, const char *user, const char *login, const char *password, int line)
{
	struct netrc_entry entry;
	struct jail_error err;

	int found = netrc_find(&entry, text, "h.example", user, &err);
	CHECK(found == (login ? 1 : 0));
	if (found == 1 && login) {
		CHECK(!strcmp(entry.login, login));
		CHECK(password ? entry.password && !strcmp(entry.password, password) : !entry.password);
		CHECK(entry.line == line);
	}
	if (found == 1)
		netrc_entry_free(&entry);
}

static void check_wrong(const char *text, int line)
{
	struct netrc_entry entry;
	struct jail_error err = { 0 };

	CHECK(netrc_find(&entry, text, "h.example", NULL, &err) == -1);
	CHECK(err.line == line);
	CHECK(err.message[0]);
	CHECK(!strstr(err.message, "hidden"));
}

static void netrc(void)
{
	check_entry("", NULL, NULL, NULL, 0);
	check_entry("# machine h.example login a\nmachine h.example login a password #1'\"\\$x # no word\n", NULL, "a",
		    "#1'\"\\$x", 2);
	check_entry("machine h.example login a password b", NULL, "a", "b", 1);
	check_entry("# c\nmachine x.example login x password y\n\nmachine H.example\n  login a\n  password b\n", NULL, "a", "b", 4);
	check_entry("machine h.example login a password b machine h.example login c password d", "c", "c", "d", 1);
	check_entry("machine h.example login a password b", "c", NULL, NULL, 0);
	check_entry("machine h.example login a password $(x y (z) )  machine i login j", NULL, "a", "$(x y (z) )", 1);
	check_entry("machine h.example login \"a b\" password \"c\\\"d\"", NULL, "a b", "c\"d", 1);
	check_entry("machine x login y password z default login a password b", NULL, "a", "b", 1);
	check_entry("machine h.example account q login a", NULL, "a", NULL, 1);
	check_entry("machine h.example login a password b#c", NULL, "a", "b#c", 1);
	check_wrong("login a", 1);
	check_wrong("machine h.example login a hidden", 1);
	check_wrong("machine x\nlogin a password hidden hidden", 2);
	check_wrong("machine h.example login", 1);
	check_wrong("machine", 1);
}

static void check_password(const char *text, const char *value)
{
	struct jail_error err = { 0 };
	char *found = password_evaluate(text, 1, &err);

	CHECK(value ? found && !strcmp(found, value) : !found);
	CHECK(value || err.message[0]);
	free(found);
}

static void passwords(void)
{
	setenv("CELLBLOCK_TEST", "v w", 1);
	check_password("plain", "plain");
	check_password("$CELLBLOCK_TEST", "v w");
	check_password("${CELLBLOCK_TEST}", "v w");
	check_password("$5abc", "$5abc");
	check_password("$a-b", "$a-b");
	check_password("$CELLBLOCK_NONE", NULL);
	check_password("$(echo -n a  'b  c' \"d $CELLBLOCK_TEST\")", "a b  c d v w");
	check_password("$(echo $CELLBLOCK_TEST;)", NULL);
	check_password("$(echo $(id))", NULL);
	check_password("$()", NULL);
	check_password("$(echo 'a)", NULL);
	check_password("$(", "$(");
	check_password("$(sleep 100)", NULL);
	check_password("$(yes)", NULL);
}

static void check_challenge(const char *header, enum challenge_scheme scheme, const char *realm, const char *service)
{
	struct challenge challenge;

	challenge_parse(&challenge, header);
	CHECK(challenge.scheme == scheme);
	CHECK(!strcmp(challenge.realm, realm));
	CHECK(!strcmp(challenge.service, service));
}

static void challenges(void)
{
	check_challenge("", CHALLENGE_NONE, "", "");
	check_challenge("Basic", CHALLENGE_BASIC, "", "");
	check_challenge("basic realm=x", CHALLENGE_BASIC, "x", "");
	check_challenge("Bearer realm=\"https://a/t\",service=\"s\",scope=\"repository:a:pull\"", CHALLENGE_BEARER, "https://a/t", "s");
	check_challenge("Basic realm=\"b\", Bearer realm=\"t\"", CHALLENGE_BEARER, "t", "");
	check_challenge("Bearer realm=\"t\" , service = s , Basic realm=\"b\"", CHALLENGE_BEARER, "t", "s");
	check_challenge("Negotiate, Digest realm=\"x, Bearer realm=y\", Basic realm=\"b\\\"c\"", CHALLENGE_BASIC, "b\"c", "");
	check_challenge("Bearer realm=\"t", CHALLENGE_BEARER, "t", "");
	check_challenge("\"Bearer realm=t\"", CHALLENGE_NONE, "", "");
}

static void base64(void)
{
	char *text = base64_encode("user:pass", 9), *back = base64_decode(text);

	CHECK(!strcmp(text, "dXNlcjpwYXNz"));
	CHECK(back && !strcmp(back, "user:pass"));
	free(text);
	free(back);
	text = base64_encode("a", 1);
	back = base64_decode(text);
	CHECK(!strcmp(text, "YQ=="));
	CHECK(back && !strcmp(back, "a"));
	free(text);
	free(back);
	CHECK(!base64_decode(""));
	CHECK(!base64_decode("abc"));
	CHECK(!base64_decode("!!!!"));
}

/* Which token server there is, the registry says. */
static void check_realm(const char *machine, const char *host, const char *realm, bool found)
{
	char folder[] = "/tmp/cellblock-test-XXXXXX";
	struct settings settings = { { { NULL, 0, 0 } } };
	const struct credential_request request = { &settings, host, "team/app", "", realm };
	struct credential credential;

	CHECK(mkdtemp(folder) && !setenv("HOME", folder, 1) && !unsetenv("XDG_RUNTIME_DIR"));
	scoped_free char *path = text_format("%s/.credentials", folder);
	scoped_free char *line = text_format("machine %s login a password b\n", machine);
	scoped_fd fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	CHECK(fd >= 0 && !text_write(fd, line, strlen(line)));
	variables_set(&settings.variables, "ENROOT_CONFIG_PATH", folder);
	credential_find(&credential, &request);
	CHECK(!credential.secret == !found);
	if (!found && !strcmp(machine, realm))
		CHECK_HAS(credential.places.text, "if it is to have this password, write it behind machine");
	credential_free(&credential);
	settings_free(&settings);
	CHECK(!unlink(path) && !rmdir(folder));
}

static void realms(void)
{
	check_realm("auth.docker.io", "docker.io", "auth.docker.io", true);
	check_realm("gitlab.example", "registry.gitlab.example:5005", "gitlab.example", true);
	check_realm("registry.example", "registry.example:5000", "registry.example", true);
	check_realm("localhost", "127.0.0.1:5000", "localhost", true);
	check_realm("auth.docker.io", "evil.example", "auth.docker.io", false);
	check_realm("auth.docker.io", "docker.io.evil.example", "auth.docker.io", false);
	check_realm("auth.docker.io", "evildocker.io", "auth.docker.io", false);
	check_realm("auth.docker.io", "io", "auth.docker.io.", false);
	check_realm("auth.other.example", "evil.other.example", "auth.other.example", false);
	check_realm("10.0.0.1", "10.0.0.2", "10.0.0.1", false);
}

int main(void)
{
	realms();
	netrc();
	passwords();
	challenges();
	base64();
	return check_result("credentials");
}
