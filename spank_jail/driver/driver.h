/* SPDX-License-Identifier: Apache-2.0 */
/* The files of a node's GPU driver that `jail-driver collect` found, and the directory that it makes of them.
 *
 * docs/jail-driver.md is the reference for administrators, docs/decisions/jail-driver.md says why.
 */
#ifndef DRIVER_H
#define DRIVER_H

#include <stdbool.h>
#include <stddef.h>

#include "native/cdi/cdi.h"
#include "native/base/error.h"

/* A driver has some sixty files; a thousand means that the wrong directory was named. */
#define DRIVER_MAX_FILES 1000
/* NAME_MAX and its NUL. */
#define DRIVER_NAME_SIZE 256

struct driver_strings {
	const char *items[16];
	size_t n;
};

/* Where to look; empty lists mean the usual places. */
struct driver_request {
	struct driver_strings devices;   /* CDI names; usually nvidia.com/gpu=all */
	struct driver_strings spec_dirs; /* of CDI specifications */
	struct driver_strings libraries, programs; /* directories with injected files */
	const char *dev;       /* where device nodes are injected: /dev */
	const char *directory; /* where the node's driver directory is made */
	const char *jail;      /* the jail's root, whose stubs say which names must stay; NULL: none */
};

struct driver_file {
	const char *name;   /* in lib64 or bin */
	const char *source; /* on the node, without symlinks */
	const char *soname; /* of a library; NULL: none, or the name itself */
	bool program;
};

struct driver_link {
	const char *name, *content; /* in lib64; content is a name beside it */
};

/* An array that grows in the arena of its set. */
struct driver_set {
	struct jail_arena arena;
	struct driver_file *files;
	size_t n_files;
	struct driver_link *links;
	size_t n_links;
	struct jail_cdi_found *found; /* by CDI: devices, variables, and files that have a place of their own */
	size_t n_found;
	const char **injected_devices; /* without CDI: paths below /dev */
	size_t n_injected_devices;
	char *notices; /* one line each, for whoever ran the command; or NULL */
};

void driver_set_free(struct driver_set *set);

/* Adds a file; one that is there already by another path counts once. -1: two different files of one name, a
 * name that is none. */
int driver_add_file(struct driver_set *set, const char *name, const char *source, const char *soname, bool program,
		    struct jail_error *err);
int driver_add_link(struct driver_set *set, const char *name, const char *content, struct jail_error *err);
int driver_add_notice(struct driver_set *set, struct jail_error *err, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* Is the set one driver? -1: libraries of two versions, or two libraries for one SONAME. Sorts it. */
int driver_check(struct driver_set *set, struct jail_error *err);

/* "535.54.03", or "" where no library's name says it. */
const char *driver_version(const struct driver_set *set);

/* find_by_cdi.c: reads the devices of the request; 0 with nothing added when no specification describes them and
 * they were not asked for by name. */
int driver_from_cdi(struct driver_set *set, const struct driver_request *request, struct jail_error *err);

/* find_in_directories.c: files and devices that a container runtime mounted into this container. */
int driver_from_injected(struct driver_set *set, const struct driver_request *request, struct jail_error *err);

/* stub.c: a stub library with `soname` for its name, in memory that the caller frees; `size` in bytes. */
char *driver_stub(const char *soname, size_t *size, struct jail_error *err);

/* stub.c: makes a stub in the directory `lib64` for each name that a jail has and this driver lacks: the usual ones,
 * and those in `jail`, a root directory (NULL: none), which its users may write. */
int driver_make_stubs(int lib64, const char *jail, struct jail_error *err);

/* spec.c: the specification by which the mount plan shows the directory `where`, as JSON that the caller frees. */
char *driver_spec(const struct driver_set *set, const char *where, struct jail_error *err);

enum driver_result { DRIVER_FAILED = -1, DRIVER_MADE, DRIVER_UNCHANGED };

/* publish.c: makes the directory and shows it as DIRECTORY/current, or leaves all as it was. */
enum driver_result driver_publish(const struct driver_set *set, const struct driver_request *request,
				  struct jail_error *err);

/* fill.c: fills a directory of the node, as an open mount, with all of the set. `contents` describes it. */
int driver_fill(const struct driver_set *set, const struct driver_request *request, int mount, const char *where,
		const char *contents, struct jail_error *err);
/* fill.c: what the set is made of, to tell whether it changed; the caller frees it. */
char *driver_contents(const struct driver_set *set, struct jail_error *err);

#endif
