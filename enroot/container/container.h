/* SPDX-License-Identifier: Apache-2.0 */
/* The state of a container while it is started: what the command line asked for, and what has been made so far. */
#ifndef ENROOT_CONTAINER_H
#define ENROOT_CONTAINER_H

#include <sys/types.h>

#include "native/settings/settings.h"
#include "hold_container.h"

struct container {
	struct settings *settings;
	const char *script;           /* of --conf, or NULL */
	const char *rc;               /* of --rc, or NULL */
	struct text_list variables;   /* of -e: "KEY=VALUE" */
	struct text_list mounts;      /* of -m, as lines of fstab */
	char *const *command;         /* NULL-terminated, may be empty */
	const struct text_buffer *bundled_config; /* configuration files instead of the user's: bundled_config.h; or NULL */
	struct hold hold;             /* in the place of a command */

	char *image;                  /* squashfs file, or NULL: a created root */
	unsigned long long offset;    /* of the squashfs in that file: of a bundle */
	char *top;                    /* path where the root is attached */
	int root;                     /* it, open; -1 before */
	char *work;                   /* path of the runtime's tmpfs */
	int lock;                     /* ROOTFS/.lock, held; -1: none */

	uid_t uid, gid;               /* outside */
	mode_t mask;                  /* the caller's umask: of hooks and the command; what enroot makes has 022 */
	char *user, *home, *shell;    /* of the host's account */
	bool remapped;                /* one is root inside */
	bool privileged;              /* root without a user namespace (ENROOT_ALLOW_SUPERUSER) */
	struct variables environment; /* of the command */
	struct variables image_environment; /* what of it the image says, before others change it */
	struct variables own_environment; /* what environ.d, a --conf script and -e say, values as they are written */
};

/* Inside, one is this uid and gid. */
#define CONTAINER_INSIDE(container, id) ((container)->remapped ? 0U : (unsigned)(container)->id)

/* Values for ${NAME} in fstab and environment files: settings, the container's environment, this process's. */
const char *container_lookup(void *container, const char *name);
/* The same for mounts that are not the image's own: this process's variables come before what the image says. */
const char *container_lookup_for_mounts(void *container, const char *name);

/* Of every mount of a root. */
#define CONTAINER_MOUNT_ATTRIBUTES (MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV)

/* The most that is read of /etc/rc. */
#define CONTAINER_MAX_RC (1024 * 1024)

/* Whether an import made the root's /etc: its /etc/rc begins with "# enroot-provenance:". environment.c */
bool container_is_imported(const struct container *container);

/* One step after the other, as `start` does them; each returns 0 or -1. */
int container_root(struct container *container, struct jail_error *err);         /* root.c */
int container_environment(struct container *container, struct jail_error *err);  /* environment.c */
int container_mounts(struct container *container, bool first, struct jail_error *err); /* mounts.c */
int container_hooks(struct container *container, struct jail_error *err);        /* hooks.c */
int container_rc(struct container *container, struct jail_error *err);           /* script.c */
int container_enter(struct container *container, struct jail_error *err);        /* launch.c */
/* Runs the command; returns only after a failure. */
int container_run(struct container *container, struct jail_error *err);          /* launch.c */

/* script.c: runs a function of the --conf script, if there is one. `output` takes what it prints, unless NULL. */
int container_script(const struct container *container, const char *function, struct text_buffer *output,
		     struct jail_error *err);

/* The environment of hooks and scripts: this process's, the settings, ENROOT_PID and its like. */
void container_hook_environment(const struct container *container, struct variables *environment);

/* pid_namespace.c: with --pid, goes on in a child that is PID 1 of a namespace; the parent forwards signals, waits, and ends as
 * it does. */
int container_pid_namespace(struct container *container, struct jail_error *err);

/* A file of the container's root, read whole; the caller frees it. NULL: it is not there, cannot be read, has more than `limit` bytes,
 * or is none: a fifo in the place of /etc/fstab would keep its reader waiting for ever. */
char *container_read(int root, const char *path, size_t limit);

/* root.c: writes a file of the runtime's tmpfs. */
int container_write(const struct container *container, const char *name, const char *text, mode_t mode,
		    struct jail_error *err);

#endif
