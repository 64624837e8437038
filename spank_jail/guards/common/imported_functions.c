/* SPDX-License-Identifier: Apache-2.0 */
/* Replaces functions in a loaded object's table of imported functions. In slurm: mpi_files.c calls it. In guards/common: array_sizes.c
 * and node_names.c; in controller: bit_ranges.c, double_unlock.c, host_names.c, long_requests.c, srun_messages.c, state_saves.c, step_arrays.c,
 * tres_texts.c and unsent_records.c; in node: confined_forks.c, connections.c, expanded_blocks.c and launches.c; in step: accounting.c, mpi_peers.c,
 * pmix.c, process_tree.c, silent_clients.c and wakeups.c. */
#define _GNU_SOURCE
#include "imported_functions.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* What the dynamic section of a library says; glibc has made addresses of its offsets. */
struct library {
	const ElfW(Sym) *symbols;
	const char *names;
	const ElfW(Rela) *plt, *others;
	size_t plt_size, others_size;
};

static struct library read_library(const struct link_map *map)
{
	struct library library = { 0 };

	for (const ElfW(Dyn) *entry = map->l_ld; entry->d_tag != DT_NULL; entry++)
		switch (entry->d_tag) {
		case DT_SYMTAB: library.symbols = (const void *)entry->d_un.d_ptr; break;
		case DT_STRTAB: library.names = (const void *)entry->d_un.d_ptr; break;
		case DT_JMPREL: library.plt = (const void *)entry->d_un.d_ptr; break;
		case DT_PLTRELSZ: library.plt_size = entry->d_un.d_val; break;
		case DT_RELA: library.others = (const void *)entry->d_un.d_ptr; break;
		case DT_RELASZ: library.others_size = entry->d_un.d_val; break;
		default: break;
		}
	return library;
}

/* Where the library keeps the address of the function `name`, which it has from another; NULL if nowhere. */
static void **find_slot(const struct link_map *map, const struct library *library, const ElfW(Rela) *list, size_t size,
			const char *name)
{
	for (size_t i = 0; list && i < size / sizeof(*list); i++) {
		size_t symbol = ELF64_R_SYM(list[i].r_info);
		if (symbol && !strcmp(library->names + library->symbols[symbol].st_name, name))
			return (void **)(map->l_addr + list[i].r_offset);
	}
	return NULL;
}

/* Some distributions link such that the table is read-only by now. */
static int write_slot(void **slot, void *value)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), first = (uintptr_t)slot & ~(page - 1);

	if (mprotect((void *)first, page, PROT_READ | PROT_WRITE))
		return -1;
	*slot = value;
	return 0;
}

struct link_map *jail_imports_program(void)
{
	struct link_map *map = NULL;
	void *program = dlopen(NULL, RTLD_LAZY);

	if (!program || dlinfo(program, RTLD_DI_LINKMAP, &map))
		return NULL;
	return map;
}

const struct link_map *jail_imports_library(const char *name)
{
	for (const struct link_map *map = jail_imports_program(); map; map = map->l_next) {
		const char *slash = strrchr(map->l_name, '/');
		if (!strncmp(slash ? slash + 1 : map->l_name, name, strlen(name)))
			return map;
	}
	return NULL;
}

int jail_imports_replace(const struct link_map *map, const char *name, void *function, struct jail_error *err)
{
	const struct library library = read_library(map);
	void **slot = find_slot(map, &library, library.plt, library.plt_size, name);

	if (!slot)
		slot = find_slot(map, &library, library.others, library.others_size, name);
	if (!slot)
		return 1;
	return write_slot(slot, function) ? jail_fail(err, "mprotect", errno, "cannot guard %s of %s", name,
						      map->l_name[0] ? map->l_name : "this program") : 0;
}

int jail_imports_wrap(const struct link_map *map, const char *name, void *function, void *own, struct jail_error *err)
{
	void *found = dlsym(RTLD_DEFAULT, name);

	if (!found)
		return 1;
	if (own)
		memcpy(own, &found, sizeof(found));
	return jail_imports_replace(map, name, function, err);
}
