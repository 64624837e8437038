/* SPDX-License-Identifier: Apache-2.0 */
/* Mounts what every container has, such as its own /tmp, and then what the files of mounts.d and the option --mount
 * ask for. start.c calls it. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "native/mount/filesystem.h"
#include "native/mount/resolve.h"
#include "native/base/scoped.h"
#include "native/base/sys.h"
#include "container.h"
#include "drop_ins.h"
#include "fstab_apply.h"

#define MAX_FSTAB (1024 * 1024) /* as long as an import makes it */

/* The names of the built-in mounts, for messages and to be replaced by: docs/enroot.md. */
#define SYSTEM "system.fstab"

static const char proc_of_host[] = "/proc /proc none x-create=dir,rbind,nosuid,nodev,noexec 0 -1\n";
static const char sys[] = "/sys /sys none x-create=dir,rbind,ro,nosuid,nodev,noexec 0 -1\n";
static const char dev_of_host[] = "/dev /dev none x-create=dir,rbind,nosuid,noexec 0 -1\n";

/* Of the host's devices only what every program expects. */
static const char dev_minimal[] =
	"tmpfs /dev tmpfs x-create=dir,nosuid,noexec,mode=755 0 -1\n"
	"/dev/null /dev/null none x-create=file,bind,nosuid,noexec 0 -1\n"
	"/dev/zero /dev/zero none x-create=file,bind,nosuid,noexec 0 -1\n"
	"/dev/full /dev/full none x-create=file,bind,nosuid,noexec 0 -1\n"
	"/dev/random /dev/random none x-create=file,bind,nosuid,noexec 0 -1\n"
	"/dev/urandom /dev/urandom none x-create=file,bind,nosuid,noexec 0 -1\n"
	"/dev/tty /dev/tty none x-create=file,bind,nosuid,noexec,nofail 0 -1\n"
	"devpts /dev/pts devpts x-create=dir,nosuid,noexec,newinstance,ptmxmode=0666,mode=0620 0 -1\n";

static const char queues[] = "mqueue /dev/mqueue mqueue x-create=dir,nosuid,nodev,noexec,nofail 0 -1\n";

static const char others[] =
	"tmpfs /tmp tmpfs x-create=dir,nosuid,nodev,mode=1777 0 -1\n"
	"tmpfs /var/run tmpfs x-create=dir,nosuid,nodev,mode=755 0 -1\n"
	"tmpfs /var/lock tmpfs x-create=dir,nosuid,nodev,noexec,mode=755 0 -1\n"
	"tmpfs /dev/shm tmpfs x-create=dir,nosuid,nodev,mode=1777 0 -1\n"
	"/etc/hosts /etc/hosts none x-create=file,bind,ro,nosuid,nodev,noexec,nofail 0 -1\n"
	"/etc/hostname /etc/hostname none x-create=file,bind,ro,nosuid,nodev,noexec,nofail 0 -1\n"
	"/etc/resolv.conf /etc/resolv.conf none x-create=file,bind,ro,nosuid,nodev,noexec,nofail 0 -1\n"
	"/etc/machine-id /etc/machine-id none x-create=file,bind,ro,nosuid,nodev,noexec,nofail 0 -1\n";

static int apply(struct container *container, const char *text, const char *name, bool first, struct jail_error *err)
{
	const struct expand_request variables = { EXPAND_BRACES, container_lookup_for_mounts, container };

	return fstab_apply_text(text, name, first, container->root, container->top, &variables, err);
}

/* A PID namespace needs a proc of its own. In the project's jail, which shows a masked one, the kernel grants it
 * read-only (docs/jail-isolation.md), and where another runtime covers parts of it, not at all. */
static int mount_proc(struct container *container, struct jail_error *err)
{
	static const char *const ways[] = {
		"proc /proc proc x-create=dir,nosuid,nodev,noexec 0 -1\n",
		"proc /proc proc x-create=dir,ro,nosuid,nodev,noexec 0 -1\n",
		proc_of_host,
	};

	for (size_t i = settings_true(container->settings, "ENROOT_UNSHARE_PID") ? 0 : 2; i < 3; i++)
		if (!apply(container, ways[i], SYSTEM, true, err))
			return 0;
		else if (err->number != EPERM)
			break;
	return -1;
}

static int link_devices(const struct container *container, struct jail_error *err)
{
	static const char *const links[][2] = { { "/proc/self/fd", "fd" }, { "/proc/self/fd/0", "stdin" },
						{ "/proc/self/fd/1", "stdout" }, { "/proc/self/fd/2", "stderr" },
						{ "pts/ptmx", "ptmx" } };
	scoped_fd dev = jail_resolve(container->root, "/dev", O_DIRECTORY, err);

	for (size_t i = 0; dev >= 0 && i < sizeof(links) / sizeof(links[0]); i++)
		if (sys_symlinkat(links[i][0], dev, links[i][1]) && errno != EEXIST)
			return jail_fail(err, "symlinkat", errno, "cannot make /dev/%s", links[i][1]);
	return dev < 0 ? -1 : 0;
}

static int mount_system(struct container *container, struct jail_error *err)
{
	const struct settings *settings = container->settings;
	bool ipc = settings_true(settings, "ENROOT_UNSHARE_IPC");
	bool minimal = ipc || settings_true(settings, "ENROOT_RESTRICT_DEV");

	return mount_proc(container, err) || apply(container, sys, SYSTEM, true, err) ||
	       apply(container, minimal ? dev_minimal : dev_of_host, SYSTEM, true, err) ||
	       (minimal && link_devices(container, err)) || (ipc && apply(container, queues, SYSTEM, true, err)) ||
	       apply(container, others, SYSTEM, true, err) ? -1 : 0;
}

/* Comments out what a machine's table says of its disks: a line of enroot's has an option or a variable of enroot's. */
static void keep_own_lines(char *text)
{
	for (char *line = text; *line; line += strcspn(line, "\n"), line += *line == '\n') {
		scoped_free char *copy = text_copy(line, strcspn(line, "\n"));
		if (*copy && !strstr(copy, "${ENROOT_") && !strstr(copy, "x-create") && !strstr(copy, "x-move") &&
		    !strstr(copy, "x-detach"))
			*line = '#';
	}
}

/* The image's own /etc/fstab: volumes. A root that was not imported has a machine's there, whose lines are no business
 * of a container's. */
static int mount_volumes(struct container *container, struct jail_error *err)
{
	scoped_free char *text = container_read(container->root, "/etc/fstab", MAX_FSTAB);

	if (text && !container_is_imported(container))
		keep_own_lines(text);
	const struct expand_request variables = { EXPAND_BRACES, container_lookup, container };
	return text ? fstab_apply_text(text, "/etc/fstab of the image", false, container->root, container->top, &variables, err) : 0;
}

static int mount_script(struct container *container, struct jail_error *err)
{
	scoped_buffer output = { 0 };

	if (container_script(container, "mounts", &output, err))
		return -1;
	return output.text ? apply(container, output.text, container->script, false, err) : 0;
}

static int mount_arguments(struct container *container, struct jail_error *err)
{
	for (size_t i = 0; i < container->mounts.n; i++)
		if (apply(container, container->mounts.items[i], "--mount", true, err) ||
		    apply(container, container->mounts.items[i], "--mount", false, err))
			return -1;
	return 0;
}

int container_mounts(struct container *container, bool first, struct jail_error *err)
{
	struct drop_ins files;
	int result = 0;

	drop_ins_find(&files, container->settings, "mounts.d", ".fstab", false);
	if (first && !drop_ins_replace(&files, SYSTEM))
		result = mount_system(container, err);
	for (size_t i = 0; !result && i < files.paths.n; i++) {
		scoped_free char *text = text_read(AT_FDCWD, files.paths.items[i], MAX_FSTAB, NULL, err);
		result = text ? apply(container, text, files.paths.items[i], first, err) : -1;
	}
	drop_ins_free(&files);
	if (result || first)
		return result;
	return mount_volumes(container, err) || mount_script(container, err) || mount_arguments(container, err) ? -1 : 0;
}
