/* SPDX-License-Identifier: Apache-2.0 */
/* forward-data LIBRARY NODE SOCKET [fence]: has the slurmd of NODE connect to a Unix socket there and write a word to it, as PMI2 of
 * Slurm does for the tasks of a step (REQUEST_FORWARD_DATA). With `fence` it is what mpi_pmi2 of one node tells another, from a node
 * that is far beyond the step's. LIBRARY is Slurm's, of the jail. Prints what slurmd answers: an error number, or 0. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef void (*initialize)(const char *configuration);
typedef int (*forward)(char **nodes, char *socket, uint32_t length, const char *data);

/* What slurmd puts before it is its length. */
static const char fence[] = "\0\0" "\x05\xf5\xe1\0" "\0\0\0\x05" "node\0" "\0\0\0\0" "\0\0\0\x01";

int main(int argc, char *argv[])
{
	void *library = argc >= 4 ? dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL) : NULL;
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
	printf("answered %d\n", argc > 4 ? send.call(&nodes, argv[3], sizeof(fence) - 1, fence)
					: send.call(&nodes, argv[3], 5, "word\n"));
	return 0;
}
