/* SPDX-License-Identifier: Apache-2.0 */
/* Checks that the files and devices that a CDI specification names are on this node, and decides where each appears
 * in the jail. Files of this folder and spank_jail/driver call it. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "cdi.h"
#include "native/base/elf_soname.h"

static int missing(const struct jail_cdi_spec *spec, int line, const char *path, struct jail_error *err)
{
	jail_fail(err, "stat", errno, errno == ENOENT
		  ? "\"%s\" is missing on this node: write the CDI specification anew (nvidia-ctk cdi generate), or add nofail"
		  : "cannot look at \"%s\" on this node", path);
	return jail_error_at(err, spec->file, line, NULL);
}

static int check_device_node(const struct jail_cdi_spec *spec, struct jail_cdi_device_node *node, struct jail_error *err)
{
	static const struct { char type; mode_t kind; } kinds[] = {
		{ 'b', S_IFBLK }, { 'c', S_IFCHR }, { 'u', S_IFCHR }, { 'p', S_IFIFO },
	};
	bool numbered = node->type && (*node->type == 'p' || (node->major.given && node->minor.given));
	struct stat st = { .st_mode = 0666 };

	if (stat(node->host_path, &st) && !numbered)
		return missing(spec, node->line, node->host_path, err);
	if (!numbered && !S_ISCHR(st.st_mode) && !S_ISBLK(st.st_mode)) {
		jail_fail(err, NULL, 0, "\"%s\" is no device on this node", node->host_path);
		return jail_error_at(err, spec->file, node->line, NULL);
	}
	node->made_device = st.st_rdev;
	node->made_mode = st.st_mode & (S_IFMT | 07777);
	for (size_t i = 0; numbered && i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (kinds[i].type == *node->type)
			node->made_mode = kinds[i].kind | (st.st_mode & 07777);
	if (numbered)
		node->made_device = makedev((unsigned)node->major.value, (unsigned)node->minor.value);
	if (node->mode.given)
		node->made_mode = (node->made_mode & S_IFMT) | (mode_t)node->mode.value;
	node->made_uid = node->uid.given ? (uid_t)node->uid.value : st.st_uid;
	node->made_gid = node->gid.given ? (gid_t)node->gid.value : st.st_gid;
	return 0;
}

bool jail_cdi_is_library(const char *name)
{
	const char *so = strstr(name, ".so");

	return so && (!so[3] || so[3] == '.');
}

static bool in_program_directory(const char *path)
{
	const char *slash = strrchr(path, '/');
	size_t length = (size_t)(slash - path);

	return (length >= 4 && !strncmp(slash - 4, "/bin", 4)) || (length >= 5 && !strncmp(slash - 5, "/sbin", 5));
}

static int check_mount(struct jail_cdi_spec *spec, struct jail_cdi_mount *mount, struct jail_error *err)
{
	const char *name = strrchr(mount->container_path, '/') + 1;
	char soname[256];
	struct stat st;

	if (stat(mount->host_path, &st))
		return missing(spec, mount->line, mount->host_path, err);
	mount->directory = S_ISDIR(st.st_mode);
	if (S_ISREG(st.st_mode) && jail_cdi_is_library(name)) {
		bool ours = jail_elf_soname(mount->host_path, soname, sizeof(soname)) == JAIL_ELF_OURS;
		mount->place = ours ? JAIL_CDI_LIBRARIES : JAIL_CDI_FOREIGN;
		if (ours && *soname && !(mount->soname = jail_arena_copy(&spec->arena, soname, strlen(soname))))
			return jail_fail(err, "malloc", ENOMEM, "not enough memory for the libraries' names");
		return 0;
	}
	bool program = S_ISREG(st.st_mode) && (st.st_mode & S_IXUSR) && in_program_directory(mount->container_path);
	mount->place = program ? JAIL_CDI_PROGRAMS : JAIL_CDI_AS_NAMED;
	return 0;
}

int jail_cdi_check(struct jail_cdi_found *found, struct jail_error *err)
{
	struct jail_cdi_edits *both[] = { &found->spec.edits, &found->device->edits };

	for (size_t i = 0; i < 2; i++) {
		for (size_t j = 0; j < both[i]->device_nodes.n; j++)
			if (check_device_node(&found->spec, &both[i]->device_nodes.items[j], err))
				return -1;
		for (size_t j = 0; j < both[i]->mounts.n; j++)
			if (check_mount(&found->spec, &both[i]->mounts.items[j], err))
				return -1;
	}
	return 0;
}
