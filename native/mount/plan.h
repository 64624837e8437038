/* SPDX-License-Identifier: Apache-2.0 */
/* The mount plan: a file in the form of fstab(5), which is parsed whole before anything is mounted.
 *
 * docs/jail-plan.md is the reference for users. The parser touches no path that the plan names.
 */
#ifndef JAIL_PLAN_H
#define JAIL_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "native/base/error.h"

enum jail_type {
	JAIL_BIND,  /* a directory or file of the node, without what is mounted below it */
	JAIL_RBIND, /* the same with everything below it */
	JAIL_TMPFS,
	JAIL_PROC,
	JAIL_SYSFS,
	JAIL_DEVPTS,
	JAIL_MQUEUE,
	JAIL_DEV, /* a private /dev of listed devices */
	JAIL_CDI, /* devices and driver files by CDI name */
};

enum jail_create { JAIL_CREATE_NONE, JAIL_CREATE_DIR, JAIL_CREATE_FILE };
enum jail_scope { JAIL_SCOPE_JOB, JAIL_SCOPE_STEP };

/* The longest list of file system parameters that one type takes. */
#define JAIL_MAX_PARAMETERS 8
/* A plan has tens of lines; a thousand means that the wrong file was named. */
#define JAIL_MAX_ENTRIES 1024

/* Whose rights count when a path is looked up for a user. */
struct jail_user {
	uid_t uid;
	gid_t gid;
	const gid_t *groups; /* supplementary */
	size_t n_groups;
};

struct jail_parameter {
	const char *key, *value; /* value NULL: a flag */
};

struct jail_entry {
	int line;             /* in the plan, from 1 */
	char *source;         /* path on the node for binds, else a label */
	char *target;         /* absolute path in the jail, without ".."; for cdi the device's name */
	enum jail_type type;
	uint64_t attributes;  /* MOUNT_ATTR_* that are set on the mount */
	struct jail_parameter parameters[JAIL_MAX_PARAMETERS]; /* for fsconfig(2), into `options` */
	size_t n_parameters;
	enum jail_create create;
	enum jail_scope scope; /* who shares what is in it, for tmpfs and dev; nothing is in the others */
	bool nofail;           /* a missing source or target skips the entry */
	const char *only_if;   /* applied only when this path exists on the node; NULL = always */
	/* For a bind that a user asked for (user_bind.h); all NULL in entries of the plan. */
	const char *beneath;   /* directory of the node: `source` is below it, and resolved within it */
	const char *origin;    /* where the user asked, for errors */
	const struct jail_user *user;
	char *options;         /* storage of the strings above */
};

struct jail_plan {
	char *file; /* name used in errors */
	struct jail_entry *entries;
	size_t n_entries;
	bool trust_owners; /* files that the plan names need not be root's; tests only */
};

/* Reads the plan at `path`, which the caller has found trustworthy. -1: unreadable, or the first wrong
 * line (errors name file and line). On success the caller releases it with jail_plan_free. */
int jail_plan_read(const char *path, struct jail_plan *plan, struct jail_error *err);

/* Reads the plan from an open descriptor; `name` is used in errors. The descriptor stays open. */
int jail_plan_read_fd(int fd, const char *name, struct jail_plan *plan, struct jail_error *err);

/* The same for `length` bytes in memory; `name` is used in errors. Entry of the fuzz target. */
int jail_plan_parse(const char *text, size_t length, const char *name, struct jail_plan *plan,
		    struct jail_error *err);

/* Adds an entry at the end; the plan owns its strings then. -1: too many, and the caller still owns it. */
int jail_plan_append(struct jail_plan *plan, const struct jail_entry *entry, struct jail_error *err);

void jail_plan_free(struct jail_plan *plan);

/* Whether all steps of a job see the same content of the entry's mount: tmpfs and dev, unless per step. */
bool jail_entry_is_shared(const struct jail_entry *entry);

/* Whether the entry shows processes: it is of type proc, or lies below the target of one that is. */
bool jail_plan_is_of_proc(const struct jail_plan *plan, const struct jail_entry *entry);

/* "bind", "tmpfs", ... */
const char *jail_type_name(enum jail_type type);

/* Internal to the parser (plan_options.c): fills an entry from its type and options fields.
 * entry->options must hold a writable copy of the fourth field. */
int jail_options_parse(const char *type, struct jail_entry *entry, struct jail_error *err);

#endif
