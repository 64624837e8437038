/* SPDX-License-Identifier: Apache-2.0 */
/* Tests docker:// URIs: what each means, and which are refused. */
#include "native/testing/check.h"
#include "native/registry/uri.h"

static void check(const char *text, const char *user, const char *host, const char *path, const char *tag)
{
	struct registry_uri uri;
	struct registry_error err = { 0 };

	int failed = registry_uri_parse(&uri, text, &err);
	CHECK(!failed);
	if (failed) {
		fprintf(stderr, "%s: %s\n", text, err.message);
		return;
	}
	CHECK(!strcmp(uri.user, user));
	CHECK(!strcmp(uri.host, host));
	CHECK(!strcmp(uri.path, path));
	CHECK(!strcmp(uri.tag, tag));
}

static void check_wrong(const char *text, const char *said)
{
	struct registry_uri uri;
	struct registry_error err = { 0 };

	CHECK(registry_uri_parse(&uri, text, &err) == -1);
	CHECK(err.fault == REGISTRY_FAULT_USAGE);
	CHECK_HAS(err.message, said);
}

static void check_file(const char *text, const char *file)
{
	struct registry_uri uri;
	struct registry_error err;
	char name[512];

	CHECK(!registry_uri_parse(&uri, text, &err));
	registry_uri_file(&uri, name);
	CHECK(!strcmp(name, file));
}

#define DIGEST "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

int main(void)
{
	struct registry_uri uri;
	struct registry_error err;

	check("docker://debian", "", "docker.io", "library/debian", "latest");
	check("debian:12", "", "docker.io", "library/debian", "12");
	check("docker://docker.io/debian", "", "docker.io", "library/debian", "latest");
	check("docker://index.docker.io/a/b", "", "docker.io", "a/b", "latest");
	check("docker://registry-1.docker.io#debian", "", "docker.io", "library/debian", "latest");
	check("docker://nvidia/cuda:12.0-base", "", "docker.io", "nvidia/cuda", "12.0-base");
	check("docker://localhost/a", "", "docker.io", "localhost/a", "latest");
	check("docker://localhost#a", "", "localhost", "a", "latest");
	check("docker://localhost:5000/a", "", "localhost:5000", "a", "latest");
	check("docker://[::1]:5000/a/b:x", "", "[::1]:5000", "a/b", "x");
	check("docker://registry.example/a/b/c", "", "registry.example", "a/b/c", "latest");
	check("docker://$oauthtoken@registry.example#org/app:1", "$oauthtoken", "registry.example", "org/app", "1");
	check("docker://ada@example.org@registry.example/app", "ada@example.org", "registry.example", "app", "latest");
	check("docker://ada@debian", "ada", "docker.io", "library/debian", "latest");
	check("docker://a__b/c-d.e---f", "", "docker.io", "a__b/c-d.e---f", "latest");
	check("docker://debian@" DIGEST, "", "docker.io", "library/debian", "");
	check("docker://ada@registry.example/a:v1@" DIGEST, "ada", "registry.example", "a", "v1");
	CHECK(!registry_uri_parse(&uri, "debian:12@" DIGEST, &err));
	CHECK(!strcmp(uri.digest, DIGEST));

	check_wrong("docker://", "no name of an image");
	check_wrong("docker://Debian", "no name of an image");
	check_wrong("docker://a//b", "no name of an image");
	check_wrong("docker://a/b/", "no name of an image");
	check_wrong("docker://a/../b", "no name of an image");
	check_wrong("docker://a___b", "no name of an image");
	check_wrong("docker://a:", "is no tag");
	check_wrong("docker://a:-x", "is no tag");
	check_wrong("docker://a:x y", "is no tag");
	check_wrong("docker://a@sha256:123", "is no digest");
	check_wrong("docker://a@sha512:123", "is no digest");
	check_wrong("docker://@a", "no name of a user");
	check_wrong("docker://a.example:123456/b", "no name of a registry");
	check_wrong("docker://a b.example/c", "no name of a registry");
	check_wrong("docker://a\nb", "a?b");

	check_file("docker://debian", "debian+latest.sqsh");
	check_file("docker://registry.example/org/app:1.0", "org+app+1.0.sqsh");
	check_file("docker://debian@" DIGEST, "debian+sha256-0123456789ab.sqsh");
	return check_result("uri");
}
