/* SPDX-License-Identifier: Apache-2.0 */
/* A command of Slurm with this library in LD_PRELOAD sends PACKED_AS where it would send the text PACKED_TEXT: a text that the command
 * itself refuses. That it did is told. With WITHOUT_HASH its credentials are for any message. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef void (*pack)(const char *text, uint32_t size, void *buffer);

static void put(const char *function, const char *text, uint32_t size, void *buffer)
{
	pack own = (pack)dlsym(RTLD_NEXT, function);
	const char *of = getenv("PACKED_TEXT"), *as = getenv("PACKED_AS");

	if (of && as && text && size == strlen(of) + 1 && !memcmp(text, of, size)) {
		dprintf(STDERR_FILENO, "packed: %s\n", as);
		text = as;
		size = (uint32_t)strlen(as) + 1;
	}
	own(text, size, buffer);
}

/* Slurm's library has it by two names. */
void packmem(const char *text, uint32_t size, void *buffer)
{
	put("packmem", text, size, buffer);
}

void slurm_packmem(const char *text, uint32_t size, void *buffer)
{
	put("slurm_packmem", text, size, buffer);
}

/* Whether credentials by that plugin have a hash of the message in them. */
int slurm_get_plugin_hash_enable(int plugin)
{
	int (*own)(int) = (int (*)(int))dlsym(RTLD_NEXT, "slurm_get_plugin_hash_enable");

	if (!getenv("WITHOUT_HASH"))
		return own(plugin);
	dprintf(STDERR_FILENO, "without hash\n");
	return 0;
}
