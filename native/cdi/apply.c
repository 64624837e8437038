/* SPDX-License-Identifier: Apache-2.0 */
/* Carries out one cdi line of a mount plan: mounts the files and makes all the devices that a CDI specification
 * lists, in the jail's tree. Which devices a job may open is decided by Slurm (ConstrainDevices). Files of this
 * folder, other libraries in native/ and spank_jail/ call it. */
#define _GNU_SOURCE
#include "apply.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "native/mount/filesystem.h"
#include "native/mount/resolve.h"
#include "native/base/scoped.h"
#include "native/base/sys.h"

#define DRIVER_ATTRIBUTES (MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV)

static const char *const part_paths[] = {
	[JAIL_CDI_LIBRARIES] = JAIL_CDI_LIBRARY_DIRECTORY,
	[JAIL_CDI_PROGRAMS] = JAIL_CDI_PROGRAM_DIRECTORY,
};

void jail_cdi_begin(struct jail_cdi_stage *stage, int root, const struct jail_apply_options *options)
{
	*stage = (struct jail_cdi_stage){ .root = root, .options = options, .parts = { -1, -1 } };
}

void jail_cdi_own(struct jail_cdi_stage *stage, int mount)
{
	struct stat st;

	if (stage->n_own < JAIL_CDI_MAX_OWN && !fstat(mount, &st))
		stage->own[stage->n_own++] = st.st_dev;
}

static bool is_own(const struct jail_cdi_stage *stage, int fd)
{
	struct stat st;

	for (size_t i = 0; i < stage->n_own && !fstat(fd, &st); i++)
		if (stage->own[i] == st.st_dev)
			return true;
	return false;
}

void jail_cdi_names_add(struct jail_cdi_names *names, const char *name)
{
	size_t used = strlen(names->text);

	names->n++;
	if (used + strlen(name) + 3 < sizeof(names->text))
		sprintf(names->text + used, "%s%s", used ? ", " : "", name);
}

int jail_cdi_parent(const struct jail_cdi_stage *stage, const char *path, struct jail_error *err)
{
	char prefix[PATH_MAX];
	int fd = -1;

	snprintf(prefix, sizeof(prefix), "%s", path);
	*strrchr(prefix, '/') = '\0';
	const size_t whole = strlen(prefix);
	/* The deepest directory that is there decides whether the rest may be made. */
	for (char *slash = prefix + whole; fd < 0; slash = strrchr(prefix, '/')) {
		*slash = '\0';
		fd = jail_resolve(stage->root, *prefix ? prefix : "/", O_DIRECTORY, err);
		if (fd < 0 && (err->number != ENOENT || !*prefix))
			return -1;
	}
	bool own = is_own(stage, fd);
	if (own && strlen(prefix) == whole)
		return fd;
	jail_close(&fd);
	if (!own) {
		jail_fail(err, NULL, EROFS, "the jail has no file system of this plan's own there: nothing is made on the "
			  "volume or on the node. For devices, put a line of type dev before the cdi line");
		return jail_error_at(err, NULL, 0, path);
	}
	snprintf(prefix, sizeof(prefix), "%s", path);
	*strrchr(prefix, '/') = '\0';
	return jail_resolve_create(stage->root, prefix, JAIL_CREATE_DIR, err);
}

int jail_cdi_bind(const char *source, bool recursive, uint64_t attributes, int parent, const char *name,
		  struct jail_error *err)
{
	scoped_fd mount = jail_filesystem_clone(source, recursive, attributes, 0, err);

	if (mount < 0)
		return -1;
	if (sys_move_mount(mount, "", parent, name, MOVE_MOUNT_F_EMPTY_PATH | (*name ? 0 : MOVE_MOUNT_T_EMPTY_PATH)))
		return jail_fail(err, "move_mount", errno, "cannot show \"%s\" of the node in the jail; are both files, or "
				 "both directories?", source);
	return 0;
}

/* A tmpfs over one of the driver's directories. The stubs below it stay what every other node sees. */
static int open_part(struct jail_cdi_stage *stage, enum jail_cdi_place place, struct jail_error *err)
{
	/* Links and empty files only; a thousand times what a driver has. */
	static const struct jail_parameter parameters[] = { { "size", "1m" }, { "mode", "0755" } };

	if (stage->parts[place] >= 0)
		return stage->parts[place];
	scoped_fd mount = jail_filesystem_new("tmpfs", parameters, 2, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, err);
	if (mount < 0)
		return -1;
	scoped_fd target = jail_resolve(stage->root, part_paths[place], O_DIRECTORY, err);
	if (target < 0)
		return -1;
	bool libraries = place == JAIL_CDI_LIBRARIES;
	scoped_fd covered = libraries ? sys_open_tree(target, "", OPEN_TREE_CLONE | AT_EMPTY_PATH) : -1;
	stage->begun = true;
	if (libraries && covered < 0)
		jail_fail(err, "open_tree", errno, "cannot clone the driver's directory");
	else if (sys_move_mount(mount, "", target, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH))
		jail_fail(err, "move_mount", errno, "cannot mount the driver's directory");
	else if (!libraries || !jail_cdi_show_stubs(mount, covered, err))
		return stage->parts[place] = jail_keep(&mount);
	return jail_error_at(err, NULL, 0, part_paths[place]);
}

static int place_in_part(struct jail_cdi_stage *stage, const struct jail_cdi_mount *mount, uint64_t attributes,
			 struct jail_error *err)
{
	const char *name = strrchr(mount->container_path, '/') + 1;
	int part = open_part(stage, mount->place, err);

	if (part < 0)
		return -1;
	stage->begun = true;
	if (sys_mknodat(part, name, S_IFREG | 0444, 0)) {
		/* Another cdi line showed it: what is of the whole specification comes with each of its devices. */
		if (errno == EEXIST)
			return 0;
		jail_fail(err, "mknodat", errno, "cannot make the place for it");
		return jail_error_at(err, NULL, 0, part_paths[mount->place]);
	}
	if (jail_cdi_bind(mount->host_path, false, DRIVER_ATTRIBUTES | mount->attributes | attributes, part, name, err))
		return -1;
	return mount->soname && strcmp(mount->soname, name) ? jail_cdi_link(part, mount->soname, name, err) : 0;
}

/* A configuration, a socket: over what the jail has at that path. */
static int place_as_named(struct jail_cdi_stage *stage, const struct jail_cdi_mount *mount,
			  const struct jail_entry *entry, struct jail_cdi_names *left_out, struct jail_error *err)
{
	enum jail_create create = entry->create == JAIL_CREATE_NONE ? JAIL_CREATE_NONE
				  : mount->directory ? JAIL_CREATE_DIR : JAIL_CREATE_FILE;
	scoped_fd target = jail_resolve_create(stage->root, mount->container_path, create, err);

	if (target < 0 && err->number != ENOENT && err->number != ENOTDIR)
		return -1;
	if (target < 0) {
		jail_cdi_names_add(left_out, mount->container_path);
		return 0;
	}
	stage->begun = true;
	return jail_cdi_bind(mount->host_path, mount->recursive,
			     MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | mount->attributes | entry->attributes, target, "", err);
}

struct left_out {
	struct jail_cdi_names missing, foreign, hooks;
};

static int place_mount(struct jail_cdi_stage *stage, const struct jail_cdi_mount *mount,
		       const struct jail_entry *entry, struct left_out *left_out, struct jail_error *err)
{
	switch (mount->place) {
	case JAIL_CDI_LIBRARIES:
	case JAIL_CDI_PROGRAMS:
		return place_in_part(stage, mount, entry->attributes, err);
	case JAIL_CDI_AS_NAMED:
		return place_as_named(stage, mount, entry, &left_out->missing, err);
	default:
		jail_cdi_names_add(&left_out->foreign, mount->container_path);
		return 0;
	}
}

static int place_edits(struct jail_cdi_stage *stage, const char *file, const struct jail_cdi_edits *edits,
		       const struct jail_entry *entry, struct left_out *left_out, struct jail_error *err)
{
	for (size_t i = 0; i < edits->mounts.n; i++)
		if (place_mount(stage, &edits->mounts.items[i], entry, left_out, err))
			return jail_error_at(err, file, edits->mounts.items[i].line, edits->mounts.items[i].container_path);
	for (size_t i = 0; i < edits->device_nodes.n; i++) {
		stage->begun = true;
		if (jail_cdi_place_device(stage, &edits->device_nodes.items[i], err))
			return jail_error_at(err, file, edits->device_nodes.items[i].line, edits->device_nodes.items[i].path);
	}
	return 0;
}

static int replace_hooks(struct jail_cdi_stage *stage, const char *file, const struct jail_cdi_edits *edits,
			 struct left_out *left_out, struct jail_error *err)
{
	for (size_t i = 0; i < edits->hooks.n; i++)
		if (jail_cdi_replace_hook(stage, &edits->hooks.items[i], &left_out->hooks, err))
			return jail_error_at(err, file, edits->hooks.items[i].line, NULL);
	return 0;
}

static void tell(const struct jail_cdi_stage *stage, const struct jail_entry *entry, const struct jail_cdi_names *names,
		 const char *what)
{
	char text[560];

	if (!names->n)
		return;
	snprintf(text, sizeof(text), "%zu %s: %s", names->n, what, names->text);
	jail_report_left_out(stage->options, entry, text);
}

/* Everything that can be missing is looked for before the first mount, so that nofail leaves out all or nothing. */
static int look_ahead(const struct jail_cdi_stage *stage, const struct jail_cdi_found *found,
		      const struct jail_entry *entry, struct jail_error *err)
{
	const struct jail_cdi_edits *both[] = { &found->spec.edits, &found->device->edits };
	bool needed[2] = { false, false };

	for (size_t i = 0; i < 2; i++)
		for (size_t j = 0; j < both[i]->mounts.n; j++)
			if (both[i]->mounts.items[j].place <= JAIL_CDI_PROGRAMS)
				needed[both[i]->mounts.items[j].place] = true;
	for (size_t i = 0; i < 2; i++) {
		if (!needed[i])
			continue;
		scoped_fd target = jail_resolve_create(stage->root, part_paths[i],
						       entry->create ? JAIL_CREATE_DIR : JAIL_CREATE_NONE, err);
		if (target >= 0)
			continue;
		if (err->number == ENOENT) {
			jail_fail(err, "openat2", ENOENT, "the jail lacks the driver's directory, which its image brings along; "
				  "upgrade the jail, make the directory there, or add x-create=dir");
			jail_error_at(err, NULL, 0, part_paths[i]);
		}
		return -1;
	}
	return 0;
}

static int apply_found(struct jail_cdi_stage *stage, struct jail_cdi_found *found, const struct jail_entry *entry,
		       struct jail_error *err)
{
	struct left_out left_out = { .missing.n = 0 };
	const struct jail_cdi_edits *both[] = { &found->spec.edits, &found->device->edits };

	if (jail_cdi_check(found, err) || look_ahead(stage, found, entry, err))
		return -1;
	for (size_t i = 0; i < 2; i++)
		if (place_edits(stage, found->spec.file, both[i], entry, &left_out, err))
			return -1;
	/* Links last: they lead to what is there by now. */
	for (size_t i = 0; i < 2; i++)
		if (replace_hooks(stage, found->spec.file, both[i], &left_out, err))
			return -1;
	tell(stage, entry, &left_out.missing, "files that the jail has no place for");
	tell(stage, entry, &left_out.foreign, "libraries for another kind of processor");
	tell(stage, entry, &left_out.hooks, "hooks, which are never run");
	return 0;
}

int jail_cdi_apply(struct jail_cdi_stage *stage, const struct jail_entry *entry, struct jail_error *err)
{
	struct jail_cdi_found found;

	stage->begun = false;
	if (jail_cdi_find(entry, stage->options->plan->trust_owners, &found, err))
		return -1;
	int result = apply_found(stage, &found, entry, err);
	jail_cdi_spec_free(&found.spec);
	return result;
}

int jail_cdi_end(struct jail_cdi_stage *stage, int result, struct jail_error *err)
{
	if (!result && stage->parts[JAIL_CDI_LIBRARIES] >= 0)
		result = jail_cdi_link_stubs(stage->parts[JAIL_CDI_LIBRARIES], err);
	for (size_t i = 0; i < 2; i++) {
		if (stage->parts[i] >= 0 && !result &&
		    sys_mount_setattr(stage->parts[i], "", AT_EMPTY_PATH, MOUNT_ATTR_RDONLY, 0)) {
			result = jail_fail(err, "mount_setattr", errno, "cannot make the driver's directory read-only");
			jail_error_at(err, NULL, 0, part_paths[i]);
		}
		jail_close(&stage->parts[i]);
	}
	return result;
}
