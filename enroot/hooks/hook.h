/* SPDX-License-Identifier: Apache-2.0 */
/* The built-in hooks, which prepare a container. Each is a file, and is left out where hooks.d has a file
 * of its name (docs/enroot.md). */
#ifndef ENROOT_HOOK_H
#define ENROOT_HOOK_H

#include "enroot/container/container.h"

/* Runs in the container's namespaces with the host's root still in reach. Returns 0 or -1. */
typedef int hook(struct container *container, struct jail_error *err);

hook hook_shadow;    /* root, nobody and the user first in passwd and group */
hook hook_home;      /* the user's home directory */
hook hook_localtime; /* the host's time zone */
hook hook_apt;       /* apt without its sandbox user */
hook hook_cgroups;   /* the cgroup file systems */
hook hook_devices;   /* /dev/log */
hook hook_nvidia;    /* GPUs that NVIDIA_VISIBLE_DEVICES names */
hook hook_mellanox;  /* InfiniBand adapters that MELLANOX_VISIBLE_DEVICES names */

/* nvidia_cdi.c: the devices that a CDI specification of the node describes. */
int hook_nvidia_cdi(struct container *container, const char *devices, struct jail_error *err);

/* libraries.c: makes the container's ld.so.cache anew, with these directories besides its own. A failure is a warning. */
int hook_update_libraries(const struct container *container, const struct text_list *folders, struct jail_error *err);

/* root_files.c */

/* One line of fstab, applied. */
int hook_mount(struct container *container, const char *line, struct jail_error *err);

/* Gives the file `folder`/`name` of the container this text, and `mode`: in the root, or laid over it where that cannot
 * be written. */
int hook_write(struct container *container, const char *folder, const char *name, const char *text, mode_t mode,
	       struct jail_error *err);

/* A symlink at `path`; one that is there already stays. */
int hook_link(struct container *container, const char *path, const char *content, struct jail_error *err);

/* The text of a file of the container; "" when there is none. The caller frees it. */
char *hook_read(const struct container *container, const char *path);

/* Whether the container has this path. */
bool hook_there(const struct container *container, const char *path);

#endif
