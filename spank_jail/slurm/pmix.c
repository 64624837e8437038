/* SPDX-License-Identifier: Apache-2.0 */
/* Guards the PMIx server in slurmstepd, which does as root what is asked of it over TCP. plugin.c calls it. */
#define _GNU_SOURCE
#include "pmix.h"

#include <dirent.h>
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "native/base/scoped.h"
#include "peer.h"

/* The place of job_control among the calls of pmix_server_module_t (PMIx Standard 3.0, chapter 11; releases add at the end). */
#define JOB_CONTROL 19

/* One step a process. */
static struct {
	uid_t user;
	void **host; /* libpmix's copy of Slurm's pmix_server_module_t */
	const char *spool;
} guarded;

/* Makes what is the user's in slurmd's spool and a PMIx server's root's: by sbcast and --output he could fill the file system
 * that slurmd works on. Of a heterogeneous job Slurm names it by another number than the job's. */
static int keep_directories(void)
{
	struct dirent *entry;
	struct stat st;
	int result = 0;
	DIR *spool = opendir(guarded.spool);

	if (!spool)
		return -1;
	while (!result && (entry = readdir(spool))) {
		if (strncmp(entry->d_name, "pmix.", 5))
			continue;
		scoped_fd directory = openat(dirfd(spool), entry->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		/* Others' end meanwhile. */
		if (directory >= 0 && !fstat(directory, &st) && st.st_uid == guarded.user)
			result = fchown(directory, 0, 0) || fchmod(directory, 0755) ? -1 : 0;
	}
	closedir(spool);
	return result;
}

/* In place of listen(2) in libpmix. Slurm has made the directory by then, and has opened nothing of the user's. An error here
 * ends the step. */
static int listen_guarded(int listener, int backlog)
{
	return guarded.spool && keep_directories() ? -1 : listen(listener, backlog);
}

/* Makes of `fd` a connection that the other end has closed, whatever it sent: the library's listener ends after some errors. */
static int hang_up(int fd)
{
	int ends[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends)) {
		close(fd);
		errno = ECONNABORTED;
		return -1;
	}
	close(ends[1]);
	fd = dup3(ends[0], fd, O_CLOEXEC);
	close(ends[0]);
	return fd;
}

/* In place of accept(2) in libpmix. Its own proof of who connects, "native", is the uid that the other end says to have. */
static int accept_user(int listener, struct sockaddr *address, socklen_t *size)
{
	uid_t uid;
	int fd = accept(listener, address, size);

	if (fd < 0)
		return fd;
	/* It asks Slurm what it can do, and says "not supported" for what is not. The removal of files that a process names
	 * (PMIX_REGISTER_CLEANUP) is part of job control, and the library does it itself: by any path, as root. */
	guarded.host[JOB_CONTROL] = NULL;
	if (!jail_peer_uid(fd, &uid) && uid == guarded.user)
		return fd;
	return hang_up(fd);
}

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

static int replace(const struct link_map *map, const char *name, void *function, struct jail_error *err)
{
	const struct library library = read_library(map);
	void **slot = find_slot(map, &library, library.plt, library.plt_size, name);

	if (!slot)
		slot = find_slot(map, &library, library.others, library.others_size, name);
	if (!slot)
		return jail_fail(err, name, 0, "libpmix does not use it: its server takes connections in an unknown way, and other "
				 "users could act as this one; use srun --mpi=none or --mpi=pmi2");
	return write_slot(slot, function) ? jail_fail(err, "mprotect", errno, "cannot guard libpmix") : 0;
}

int jail_pmix_guard(uid_t user, struct jail_error *err)
{
	struct link_map *map;
	Dl_info ignored;

	/* Loaded with the plugin of Slurm's that needs it, which is before ours are. */
	void *server = dlsym(RTLD_DEFAULT, "PMIx_server_init");
	if (!server)
		return 0;
	guarded.user = user;
	guarded.host = dlsym(RTLD_DEFAULT, "pmix_host_server");
	if (!guarded.host || !dladdr1(server, &ignored, (void **)&map, RTLD_DL_LINKMAP))
		return jail_fail(err, "dlsym", 0, "this libpmix has no pmix_host_server: its server would remove what a task "
				 "names on the node; use srun --mpi=none or --mpi=pmi2");
	return replace(map, "accept", (void *)accept_user, err) || replace(map, "listen", (void *)listen_guarded, err) ? -1 : 0;
}

void jail_pmix_keep_directory(const char *spool)
{
	guarded.spool = spool;
}
