/* SPDX-License-Identifier: Apache-2.0 */
/* A specification of the Container Device Interface (CDI 0.3 to 1.0), as C structs.
 *
 * Files of the node, written by the vendor's tools (nvidia-ctk cdi generate), as typed values. Nothing here mounts;
 * apply.h does.
 */
#ifndef JAIL_CDI_H
#define JAIL_CDI_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "native/base/arena.h"
#include "native/base/error.h"
#include "native/mount/device_name.h"
#include "native/mount/plan.h"

struct jail_cdi_number {
	bool given;
	int64_t value;
};

struct jail_cdi_strings {
	const char **items;
	size_t n;
};

struct jail_cdi_device_node {
	int line; /* in the specification, from 1, as in all that follow */
	const char *path;      /* in the jail, below /dev */
	const char *host_path; /* on the node */
	const char *type;      /* "c", "u", "b", "p", or NULL: as on the node */
	struct jail_cdi_number major, minor, mode, uid, gid;
	const char *permissions; /* for the device cgroup, which is Slurm's business */
	/* What to make, filled by jail_cdi_check. */
	mode_t made_mode;
	dev_t made_device;
	uid_t made_uid;
	gid_t made_gid;
};

/* Where a file of the node appears in the jail. */
enum jail_cdi_place {
	JAIL_CDI_LIBRARIES, /* JAIL_CDI_LIBRARY_DIRECTORY */
	JAIL_CDI_PROGRAMS,  /* JAIL_CDI_PROGRAM_DIRECTORY */
	JAIL_CDI_AS_NAMED,  /* at its containerPath, if that is there */
	JAIL_CDI_FOREIGN,   /* nowhere: a library for another kind of processor */
};

/* Directories of the jail's image that are the driver's: docs/decisions/jail-cdi.md. */
#define JAIL_CDI_LIBRARY_DIRECTORY "/usr/local/nvidia/lib64"
#define JAIL_CDI_PROGRAM_DIRECTORY "/usr/local/nvidia/bin"

struct jail_cdi_mount {
	int line;
	const char *host_path, *container_path;
	const char *type; /* NULL, "none" or "bind" */
	struct jail_cdi_strings options;
	uint64_t attributes; /* MOUNT_ATTR_* of the options */
	bool recursive;
	/* Filled by jail_cdi_check. */
	enum jail_cdi_place place;
	bool directory;
	const char *soname; /* of a library, or NULL */
};

struct jail_cdi_hook {
	int line;
	const char *name; /* when it would run: "createContainer" */
	const char *path; /* the program */
	struct jail_cdi_strings arguments, environment;
	struct jail_cdi_number timeout;
};

struct jail_cdi_edits {
	struct { struct jail_cdi_device_node *items; size_t n; } device_nodes;
	struct { struct jail_cdi_mount *items; size_t n; } mounts;
	struct { struct jail_cdi_hook *items; size_t n; } hooks;
	struct jail_cdi_strings environment; /* NAME=VALUE */
};

struct jail_cdi_device {
	int line;
	const char *name;
	struct jail_cdi_edits edits;
};

struct jail_cdi_spec {
	char *file;
	const char *version, *kind;
	struct jail_cdi_edits edits; /* of every device in the file */
	struct { struct jail_cdi_device *items; size_t n; } devices;
	struct jail_arena arena; /* holds all of the above but `file` */
};

/* The one specification that defines a device. */
struct jail_cdi_found {
	struct jail_cdi_spec spec;
	struct jail_cdi_device *device;
};

struct jail_environment {
	char **variables; /* NAME=VALUE */
	size_t n;
};

/* Reads a specification of `length` bytes; `name` stands for the file in errors, which carry the line.
 * On success the caller releases it with jail_cdi_spec_free. */
int jail_cdi_spec_parse(const char *text, size_t length, const char *name, struct jail_cdi_spec *spec,
			struct jail_error *err);
void jail_cdi_spec_free(struct jail_cdi_spec *spec);

/* Finds the device of a cdi entry in its directories: a later directory wins, two files of one directory
 * that define it are an error, and so is any file that cannot be read: it could hide the device. `trust_owners`
 * leaves out the check that root alone can write the files. -1 with err->number ENODEV: no such device
 * here. On success the caller releases found->spec. */
int jail_cdi_find(const struct jail_entry *entry, bool trust_owners, struct jail_cdi_found *found,
		  struct jail_error *err);

/* Looks at what the edits name on the node, and decides what becomes of it: fills the members that say
 * so. -1 with err->number ENOENT: a file or device is missing on this node. */
int jail_cdi_check(struct jail_cdi_found *found, struct jail_error *err);

/* libcuda.so, libcuda.so.1, nvidia_drv.so: does a file of this name hold a shared object? */
bool jail_cdi_is_library(const char *name);

/* Visits the links that a create-symlinks hook would make, in order: `path` is to lead to `content`. Any other hook has
 * none. Returns 0, or -1: an argument that is no link, or `visit` failed. */
typedef int jail_cdi_link_visitor(void *context, const char *content, const char *path, struct jail_error *err);
int jail_cdi_hook_links(const struct jail_cdi_hook *hook, jail_cdi_link_visitor *visit, void *context,
			struct jail_error *err);

/* Visits the directories, there or not, and the specification files that a cdi entry depends on: for whoever
 * keeps a tree that was built before. The driver's files that they name are left out: who replaces those,
 * writes the specification anew. Returns 0, or -1, also when `visit` does. */
int jail_cdi_dependencies(const struct jail_entry *entry,
			  int (*visit)(void *context, const char *path, struct jail_error *err), void *context,
			  struct jail_error *err);

/* The variables that the plan's cdi entries set, in order (a later one wins). The core cannot set them:
 * the caller does, in the task. nofail and x-jail.if count as for the mounts. Returns 0 or -1; on
 * success the caller releases them with jail_environment_free. */
int jail_cdi_environment(const struct jail_plan *plan, struct jail_environment *environment,
			 struct jail_error *err);
void jail_environment_free(struct jail_environment *environment);

#endif
