/* SPDX-License-Identifier: Apache-2.0 */
/* Carries out the cdi lines of a mount plan: makes the devices and mounts of a CDI specification
 * in the jail's tree. */
#ifndef JAIL_CDI_APPLY_H
#define JAIL_CDI_APPLY_H

#include <stdbool.h>
#include <sys/types.h>

#include "cdi.h"
#include "native/mount/apply_options.h"

/* More tmpfs lines than any plan has; of those beyond, nothing is made in. */
#define JAIL_CDI_MAX_OWN 64

/* What the cdi lines of one plan share while it is applied. */
struct jail_cdi_stage {
	int root; /* the attached tree */
	const struct jail_apply_options *options;
	int parts[2]; /* the tmpfs over the driver's directories, by enum jail_cdi_place; -1: not there yet */
	/* File systems that this plan made in memory, by st_dev: in these, and in no other, files may be made. */
	dev_t own[JAIL_CDI_MAX_OWN];
	size_t n_own;
	bool begun; /* something of the present line is in the tree: too late for nofail */
};

void jail_cdi_begin(struct jail_cdi_stage *stage, int root, const struct jail_apply_options *options);

/* Remembers the file system of `mount` as one that this plan made. */
void jail_cdi_own(struct jail_cdi_stage *stage, int mount);

/* Applies one cdi entry. Loads libyaml, so it runs where "/" is the node's: before the window, before the pivot. On
 * -1 with stage->begun false nothing has changed in the tree. */
int jail_cdi_apply(struct jail_cdi_stage *stage, const struct jail_entry *entry, struct jail_error *err);

/* After the last line, whatever the result: makes what was filled read-only and lets go of it. `result` is
 * passed through; a failure is -1. */
int jail_cdi_end(struct jail_cdi_stage *stage, int result, struct jail_error *err);

/* Internal to cdi_*.c. */

/* A list for one notice: as many names as fit, and how many there are. */
struct jail_cdi_names {
	char text[440];
	size_t n;
};
void jail_cdi_names_add(struct jail_cdi_names *names, const char *name);

/* Opens the directory that `path` lies in, and makes it where that is one of the plan's own file
 * systems; -1 with err->number EROFS where it would be the volume or the node. */
int jail_cdi_parent(const struct jail_cdi_stage *stage, const char *path, struct jail_error *err);

/* Clones the node's `source` and lays it over `name` in the directory `parent`, or over `parent` itself
 * when `name` is "". */
int jail_cdi_bind(const char *source, bool recursive, uint64_t attributes, int parent, const char *name,
		  struct jail_error *err);

/* device_nodes.c: makes the node in the private /dev, or lays the node's own over what is there. */
int jail_cdi_place_device(const struct jail_cdi_stage *stage, const struct jail_cdi_device_node *node,
			  struct jail_error *err);

/* hook.c: does what the hook would do where that is known; else adds its name to `left_out`. */
int jail_cdi_replace_hook(const struct jail_cdi_stage *stage, const struct jail_cdi_hook *hook,
			  struct jail_cdi_names *left_out, struct jail_error *err);

/* hook.c: a link in one of the driver's directories; one that is there already is left alone. */
int jail_cdi_link(int directory, const char *name, const char *content, struct jail_error *err);

/* stubs.c: shows the clone `stubs` of what the tmpfs `part` covers inside it, by a hidden name; and, when
 * the driver's own libraries are in, links those of its names that are still free. */
int jail_cdi_show_stubs(int part, int stubs, struct jail_error *err);
int jail_cdi_link_stubs(int part, struct jail_error *err);

#endif
