/* SPDX-License-Identifier: Apache-2.0 */
/* Tests which entry of an image index is chosen for a processor architecture. */
#include <stdlib.h>

#include "native/testing/check.h"
#include "native/registry/manifest.h"

#define DIGEST(digit) "sha256:" digit "123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define ENTRY(digit, platform) "{\"digest\": \"" DIGEST(digit) "\", \"platform\": " platform "}"

/* The digit with which the digest of the chosen entry begins, or 0. */
static char choose(const char *index, const char *architecture, struct registry_error *err)
{
	struct platform platform;
	char digest[72];

	CHECK(!platform_of(&platform, architecture));
	return manifest_choose(index, strlen(index), "x", "", &platform, digest, err) == 1 ? digest[7] : 0;
}

int main(void)
{
	struct registry_error err = { 0 };
	struct platform platform;
	struct registry_image image = { 0 };
	static const char arms[] = "{\"manifests\": ["
		ENTRY("1", "{\"os\": \"linux\", \"architecture\": \"arm\", \"variant\": \"v5\"}") ","
		ENTRY("2", "{\"os\": \"linux\", \"architecture\": \"arm\", \"variant\": \"v6\"}") ","
		ENTRY("3", "{\"os\": \"windows\", \"architecture\": \"arm\", \"variant\": \"v7\"}") ","
		ENTRY("4", "{\"os\": \"linux\", \"architecture\": \"arm64\", \"variant\": \"v8\"}") ","
		ENTRY("5", "{\"os\": \"unknown\", \"architecture\": \"unknown\"}") ","
		ENTRY("6", "{\"os\": \"linux\", \"architecture\": \"amd64\", \"variant\": \"v2\"}") "]}";
	static const char plain[] = "{\"manifests\": [{\"digest\": \"" DIGEST("7") "\"}]}";

	CHECK(choose(arms, "arm", &err) == '2'); /* v7 runs what v6 does */
	CHECK(choose(arms, "arm/v5", &err) == '1');
	CHECK(choose(arms, "arm64", &err) == '4');
	CHECK(choose(arms, "aarch64", &err) == '4');
	CHECK(choose(arms, "amd64", &err) == '6');
	CHECK(choose(plain, "amd64", &err) == '7');
	CHECK(!choose(arms, "riscv64", &err));
	CHECK(err.fault == REGISTRY_FAULT_PLATFORM);
	CHECK_HAS(err.message, "linux/arm/v5, linux/arm/v6, windows/arm/v7, linux/arm64/v8, linux/amd64/v2");
	CHECK(!choose("{\"manifests\": [], \"mediaType\": \"x\"}", "amd64", &err));
	CHECK(!choose("[]", "amd64", &err));
	CHECK_HAS(err.message, "no JSON object");
	CHECK(!choose("{\"manifests\": [{\"digest\": \"sha256:../x\"}]}", "amd64", &err));
	CHECK_HAS(err.message, "no sha256 digest");
	CHECK(platform_of(&platform, "") == -1);
	CHECK(platform_of(&platform, "a-name-that-is-longer-than-any-architecture") == -1);

	image.manifest = (char *)"{\"schemaVersion\": 1, \"fsLayers\": []}";
	image.manifest_length = strlen(image.manifest);
	CHECK(manifest_read(&image, "x", &err) == -1);
	CHECK_HAS(err.message, "schema 1");
	manifest_free_layers(&image);
	return check_result("manifest");
}
