/* SPDX-License-Identifier: Apache-2.0 */
/* Converts names of processor architectures, and says how well an entry of an image index fits one. manifest.c,
 * session.c and enroot/importing call it. */
#define _GNU_SOURCE
#include "platform.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

/* Other names of them: of the kernel, of Debian, and old ones of Docker. */
static const char *const other_names[][3] = {
	{ "x86_64", "amd64", "" },   { "x86-64", "amd64", "" },  { "aarch64", "arm64", "" }, { "arm64v8", "arm64", "v8" },
	{ "armv8l", "arm", "v7" },   { "armv7l", "arm", "v7" },  { "armhf", "arm", "v7" },   { "arm32v7", "arm", "v7" },
	{ "armv6l", "arm", "v6" },   { "armel", "arm", "v6" },   { "i386", "386", "" },      { "i686", "386", "" },
	{ "i586", "386", "" },       { "ppc64el", "ppc64le", "" },
	/* As Go's tools take an arm that names no variant. */
	{ "arm", "arm", "v7" },      { "arm64", "arm64", "v8" },
};

int platform_of(struct platform *platform, const char *name)
{
	struct utsname machine;
	const char *slash;

	*platform = (struct platform){ .asked = name != NULL };
	if (!name)
		name = uname(&machine) ? "x86_64" : machine.machine;
	slash = strchr(name, '/');
	size_t length = slash ? (size_t)(slash - name) : strlen(name);
	if (!length || length >= sizeof(platform->architecture) || (slash && strlen(slash + 1) >= sizeof(platform->variant)))
		return -1;
	memcpy(platform->architecture, name, length);
	for (size_t i = 0; i < sizeof(other_names) / sizeof(other_names[0]); i++)
		if (!strcmp(platform->architecture, other_names[i][0])) {
			strcpy(platform->architecture, other_names[i][1]);
			strcpy(platform->variant, other_names[i][2]);
			break;
		}
	if (slash)
		strcpy(platform->variant, slash + 1);
	return 0;
}

int platform_fit(const struct platform *platform, const char *os, const char *architecture, const char *variant)
{
	const char *wanted = platform->variant;

	if ((*os && strcmp(os, "linux")) || strcmp(architecture, platform->architecture))
		return 0;
	if (!strcmp(variant, wanted))
		return 100;
	if (!*variant)
		return 90;
	if (!*wanted)
		return 50 - (variant[0] == 'v' ? atoi(variant + 1) % 40 : 40);
	/* A processor runs what was made for those before it. */
	if (variant[0] == 'v' && wanted[0] == 'v' && atoi(variant + 1) < atoi(wanted + 1))
		return 10 + atoi(variant + 1) % 40;
	return 0;
}
