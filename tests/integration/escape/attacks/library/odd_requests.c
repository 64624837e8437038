/* SPDX-License-Identifier: Apache-2.0 */
/* A command of Slurm with this library in LD_PRELOAD sends its first message once for each byte of it, and nothing else: from there on
 * ODD_BYTES bytes are 0xff, or ODD_VALUE. It is signed with the user's own credential. Its kind, and how often, is told. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* For an answer, if there is one. */
#define ANSWER_S 3

typedef int (*hash)(char *body, int length, char *kind, int kind_length, void *result);

static int given(const char *name, int otherwise)
{
	const char *value = getenv(name);

	return value ? atoi(value) : otherwise;
}

/* Slurm calls it with the body of each message, and sends that. */
int hash_g_compute(char *body, int length, char *kind, int kind_length, void *result)
{
	hash own = (hash)dlsym(RTLD_NEXT, "hash_g_compute");
	static bool is_changed;
	const int bytes = given("ODD_BYTES", 1), value = given("ODD_VALUE", 0xff);
	uint16_t type = 0;

	if (is_changed || bytes > length)
		return own(body, length, kind, kind_length, result);
	memcpy(&type, kind, sizeof(type));
	for (int at = 0; at + bytes <= length; at++) {
		pid_t child = fork();
		if (child < 0)
			_exit(1);
		if (!child) {
			int nowhere = open("/dev/null", O_RDWR);

			dup2(nowhere, STDOUT_FILENO);
			dup2(nowhere, STDERR_FILENO);
			alarm(ANSWER_S);
			is_changed = true;
			memset(body + at, value, (size_t)bytes);
			return own(body, length, kind, kind_length, result);
		}
		waitpid(child, NULL, 0);
	}
	dprintf(STDERR_FILENO, "odd: %u in %d places\n", __builtin_bswap16(type), length + 1 - bytes);
	_exit(0);
}
