/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the mount of one line of a mount plan, such as a tmpfs, without attaching it anywhere yet. Files of this
 * folder, enroot/, other libraries in native/ and spank_jail/ call it. */
#define _GNU_SOURCE
#include "filesystem.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "native/base/scoped.h"
#include "native/base/sys.h"
#include "user_bind.h"

/* The kernel writes why it refused a parameter into the context itself ("e tmpfs: Bad value for 'size'"). */
static void kernel_reason(int fs, char *buffer, size_t size)
{
	ssize_t got = read(fs, buffer, size - 1);

	buffer[got > 0 ? got : 0] = '\0';
	buffer[strcspn(buffer, "\n")] = '\0';
	if (!strncmp(buffer, "e ", 2))
		memmove(buffer, buffer + 2, strlen(buffer) - 1);
}

static int configure(int fs, const struct jail_parameter *parameters, size_t n, struct jail_error *err)
{
	char reason[160];

	for (size_t i = 0; i < n; i++) {
		const struct jail_parameter *p = &parameters[i];
		unsigned command = p->value ? FSCONFIG_SET_STRING : FSCONFIG_SET_FLAG;
		if (!sys_fsconfig(fs, command, p->key, p->value))
			continue;
		int number = errno;
		kernel_reason(fs, reason, sizeof(reason));
		return jail_fail(err, "fsconfig", number, "the kernel refuses %s=%s%s%s", p->key,
				 p->value ? p->value : "", reason[0] ? ": " : "", reason);
	}
	if (sys_fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL)) {
		int number = errno;
		kernel_reason(fs, reason, sizeof(reason));
		return jail_fail(err, "fsconfig", number, "the kernel refuses to create the file system%s%s",
				 reason[0] ? ": " : "", reason);
	}
	return 0;
}

int jail_filesystem_new(const char *type, const struct jail_parameter *parameters, size_t n_parameters,
			uint64_t attributes, struct jail_error *err)
{
	scoped_fd fs = sys_fsopen(type);

	if (fs < 0)
		return jail_fail(err, "fsopen", errno, errno == ENODEV ? "this kernel has no %s"
				 : errno == EPERM ? "mounting %s needs CAP_SYS_ADMIN" : "cannot open type %s", type);
	if (configure(fs, parameters, n_parameters, err))
		return -1;
	int mount = sys_fsmount(fs, (unsigned)attributes);
	if (mount < 0)
		return jail_fail(err, "fsmount", errno, "cannot mount a new %s", type);
	return mount;
}

/* A device, FIFO or socket is used through a read-only mount as through any other, but its owner, mode and times stay as they
 * are: they are those of the node's own, and of all jobs there. */
static int is_special(int mount, bool *special, struct jail_error *err)
{
	struct stat st;

	if (sys_fstat(mount, &st))
		return jail_fail(err, "fstat", errno, "cannot look at the source");
	*special = !S_ISDIR(st.st_mode) && !S_ISREG(st.st_mode);
	return 0;
}

int jail_filesystem_clone(const char *path, int recursive, uint64_t attributes, int private,
			  struct jail_error *err)
{
	unsigned deep = recursive ? AT_RECURSIVE : 0;
	scoped_fd mount = sys_open_tree(AT_FDCWD, path, OPEN_TREE_CLONE | deep);

	if (mount < 0) {
		int number = errno;
		return jail_fail(err, "open_tree", number,
				 number == ENOENT ? "the source \"%s\" is missing on this node; make it, or add nofail"
				 : number == ESTALE ? "the source \"%s\" is on a stale file handle; mount it again"
				 : "cannot take the source \"%s\"", path);
	}
	bool special = false;
	if (is_special(mount, &special, err))
		return jail_error_at(err, NULL, 0, path);
	attributes |= special ? MOUNT_ATTR_RDONLY : 0;
	if ((attributes || private) &&
	    sys_mount_setattr(mount, "", AT_EMPTY_PATH | deep, attributes, private ? JAIL_MS_PRIVATE : 0))
		return jail_fail(err, "mount_setattr", errno, "cannot set the options on \"%s\"; Linux 5.12 or newer "
				 "is needed", path);
	return jail_keep(&mount);
}

int jail_filesystem_open(const struct jail_entry *entry, struct jail_error *err)
{
	switch (entry->type) {
	case JAIL_BIND:
	case JAIL_RBIND:
		if (entry->beneath)
			return jail_user_bind_source(entry, err);
		return jail_filesystem_clone(entry->source, entry->type == JAIL_RBIND, entry->attributes, 0, err);
	case JAIL_DEV: /* read-only, if asked, once it is filled: jail_tree_apply */
		return jail_filesystem_new("tmpfs", entry->parameters, entry->n_parameters,
					   entry->attributes & ~(uint64_t)MOUNT_ATTR_RDONLY, err);
	case JAIL_CDI:
		return jail_fail(err, NULL, EINVAL, "a cdi entry is many mounts, made by jail_cdi_apply");
	default:
		return jail_filesystem_new(jail_type_name(entry->type), entry->parameters, entry->n_parameters,
					   entry->attributes, err);
	}
}
