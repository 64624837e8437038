/* SPDX-License-Identifier: Apache-2.0 */
/* forward-data LIBRARY NODE SOCKET: has the slurmd of NODE connect to a Unix socket there and write a word to it, as PMI2 of
 * Slurm does for the tasks of a step (REQUEST_FORWARD_DATA). LIBRARY is Slurm's, of the jail. Prints what slurmd answers: an
 * error number, or 0. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef void (*initialize)(const char *configuration);
typedef int (*forward)(char **nodes, char *socket, uint32_t length, const char *data);

int main(int argc, char *argv[])
{
	void *library = argc == 4 ? dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL) : NULL;
	union {
		void *symbol;
		initialize call;
	} begin = { library ? dlsym(library, "slurm_init") : NULL };
	union {
		void *symbol;
		forward call;
	} send = { library ? dlsym(library, "slurm_forward_data") : NULL };

	if (!send.symbol || !begin.symbol) {
		fprintf(stderr, "%s\n", dlerror());
		return 1;
	}
	begin.call(NULL);
	char *nodes = strdup(argv[2]);
	printf("answered %d\n", send.call(&nodes, argv[3], 5, "word\n"));
	return 0;
}
