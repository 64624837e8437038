/* SPDX-License-Identifier: Apache-2.0 */
/* Collects the files and links of a GPU driver in a list, and checks them. The other files of jail-driver call it. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "driver.h"

static int no_memory(struct jail_error *err)
{
	return jail_fail(err, "malloc", ENOMEM, "not enough memory for the list of the driver's files");
}

void driver_set_free(struct driver_set *set)
{
	for (size_t i = 0; i < set->n_found; i++)
		jail_cdi_spec_free(&set->found[i].spec);
	free(set->found);
	free(set->notices);
	jail_arena_free(&set->arena);
	memset(set, 0, sizeof(*set));
}

static const char *keep(struct driver_set *set, const char *text)
{
	return text ? jail_arena_copy(&set->arena, text, strlen(text)) : NULL;
}

static int check_name(const char *name, const char *source, struct jail_error *err)
{
	bool good = *name && *name != '.' && strlen(name) < DRIVER_NAME_SIZE;

	for (const char *c = name; *c; c++)
		good &= *c != '/' && (unsigned char)*c >= 0x20 && *c != 0x7f;
	if (good)
		return 0;
	jail_fail(err, NULL, 0, "this file cannot lie in the driver's directory as \"%.100s\": a name of at most 255 bytes "
		  "without slashes and control characters is needed; correct the CDI specification, or rename the file",
		  name);
	return jail_error_at(err, NULL, 0, source);
}

static bool same_file(const char *a, const char *b)
{
	struct stat one, other;

	return !stat(a, &one) && !stat(b, &other) && one.st_dev == other.st_dev && one.st_ino == other.st_ino;
}

int driver_add_file(struct driver_set *set, const char *name, const char *source, const char *soname, bool program,
		    struct jail_error *err)
{
	if (check_name(name, source, err) || (soname && *soname && check_name(soname, source, err)))
		return -1;
	for (size_t i = 0; i < set->n_files; i++) {
		const struct driver_file *other = &set->files[i];
		if (other->program != program || strcmp(other->name, name))
			continue;
		if (same_file(other->source, source))
			return 0;
		jail_fail(err, NULL, 0, "\"%.180s\" has the same name and is another file: which of them is this node's "
			  "driver? Remove one, or name its directory (jail-driver collect --help)", other->source);
		return jail_error_at(err, NULL, 0, source);
	}
	if (set->n_files == DRIVER_MAX_FILES)
		return jail_fail(err, NULL, 0, "more than %d files: this is no driver; is a directory wrong?", DRIVER_MAX_FILES);
	if (!set->files && !(set->files = jail_arena_alloc(&set->arena, DRIVER_MAX_FILES * sizeof(*set->files))))
		return no_memory(err);
	struct driver_file *file = &set->files[set->n_files++];
	file->program = program;
	file->name = keep(set, name);
	file->source = keep(set, source);
	file->soname = soname && *soname && strcmp(soname, name) ? keep(set, soname) : NULL;
	return file->name && file->source ? 0 : no_memory(err);
}

int driver_add_link(struct driver_set *set, const char *name, const char *content, struct jail_error *err)
{
	if (check_name(name, name, err) || check_name(content, name, err))
		return -1;
	if (!strcmp(name, content))
		return 0;
	for (size_t i = 0; i < set->n_links; i++)
		if (!strcmp(set->links[i].name, name))
			return 0;
	if (set->n_links == DRIVER_MAX_FILES)
		return jail_fail(err, NULL, 0, "more than %d links: this is no driver", DRIVER_MAX_FILES);
	if (!set->links && !(set->links = jail_arena_alloc(&set->arena, DRIVER_MAX_FILES * sizeof(*set->links))))
		return no_memory(err);
	struct driver_link *link = &set->links[set->n_links++];
	link->name = keep(set, name);
	link->content = keep(set, content);
	return link->name && link->content ? 0 : no_memory(err);
}

int driver_add_notice(struct driver_set *set, struct jail_error *err, const char *format, ...)
{
	char text[700];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	size_t used = set->notices ? strlen(set->notices) : 0;
	char *grown = realloc(set->notices, used + strlen(text) + 2);
	if (!grown)
		return no_memory(err);
	sprintf(grown + used, "%s\n", jail_one_line(text));
	set->notices = grown;
	return 0;
}

/* The driver's version in a library's name: "535.54.03" in libcuda.so.535.54.03. Libraries beside the driver have
 * versions of their own (libnvidia-egl-wayland.so.1.1.11); the driver's have had three digits at the start since 2006. */
static const char *version_of(const char *name)
{
	const char *so = strstr(name, ".so.");

	if (!so)
		return NULL;
	const char *version = so + 4;
	return strspn(version, "0123456789") >= 3 && version[strspn(version, "0123456789")] == '.' &&
	       strspn(version, "0123456789.") == strlen(version) ? version : NULL;
}

const char *driver_version(const struct driver_set *set)
{
	for (size_t i = 0; i < set->n_files; i++) {
		const char *version = set->files[i].program ? NULL : version_of(set->files[i].name);
		if (version)
			return version;
	}
	return "";
}

static int check_version(const struct driver_set *set, struct jail_error *err)
{
	const struct driver_file *first = NULL;

	for (size_t i = 0; i < set->n_files; i++) {
		const struct driver_file *file = &set->files[i];
		const char *version = file->program ? NULL : version_of(file->name);
		if (!version)
			continue;
		if (!first)
			first = file;
		if (!strcmp(version_of(first->name), version))
			continue;
		jail_fail(err, NULL, 0, "this is of driver %.40s, but \"%.150s\" is of %.40s: a driver is of one version; remove "
			  "the rest of the other one, or write the CDI specification anew", version, first->source,
			  version_of(first->name));
		return jail_error_at(err, NULL, 0, file->source);
	}
	return 0;
}

static const char *soname_of(const struct driver_file *file)
{
	return file->program ? "" : file->soname ? file->soname : file->name;
}

static int check_sonames(const struct driver_set *set, struct jail_error *err)
{
	for (size_t i = 0; i < set->n_files; i++)
		for (size_t j = 0; j < i; j++) {
			const char *soname = soname_of(&set->files[i]);
			if (!*soname || strcmp(soname, soname_of(&set->files[j])))
				continue;
			jail_fail(err, NULL, 0, "\"%.180s\" is %.80s, too: which of them is this node's driver? Remove one",
				  set->files[j].source, soname);
			return jail_error_at(err, NULL, 0, set->files[i].source);
		}
	return 0;
}

static int by_name(const void *a, const void *b)
{
	const struct driver_file *one = a, *other = b;
	int order = (int)one->program - (int)other->program;

	return order ? order : strcmp(one->name, other->name);
}

static int by_link(const void *a, const void *b)
{
	return strcmp(((const struct driver_link *)a)->name, ((const struct driver_link *)b)->name);
}

int driver_check(struct driver_set *set, struct jail_error *err)
{
	if (set->n_files)
		qsort(set->files, set->n_files, sizeof(*set->files), by_name);
	if (set->n_links)
		qsort(set->links, set->n_links, sizeof(*set->links), by_link);
	return check_version(set, err) || check_sonames(set, err) ? -1 : 0;
}
