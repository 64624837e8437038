/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the specification on this node that defines a CDI device. It also lists the files that it looked at, so that
 * callers notice a change. apply.c, environment.c, enroot/hooks and spank_jail call it. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cdi.h"
#include "native/base/scoped.h"
#include "native/base/sys.h"
#include "native/base/trust.h"

/* nvidia-ctk writes some 100 KiB for eight GPUs cut into MIG devices. */
#define FILE_MAX_BYTES (4 * 1024 * 1024)

/* CDI 1.0: the later one wins. The second is /run/cdi by the link that every distribution has. */
static const char *const default_directories[] = { "/etc/cdi", "/var/run/cdi" };

struct directories {
	const char *paths[JAIL_MAX_PARAMETERS];
	size_t n;
};

static struct directories directories_of(const struct jail_entry *entry)
{
	struct directories found = { .n = 0 };

	for (size_t i = 0; i < entry->n_parameters; i++)
		found.paths[found.n++] = entry->parameters[i].value;
	for (size_t i = 0; !entry->n_parameters && i < sizeof(default_directories) / sizeof(default_directories[0]); i++)
		found.paths[found.n++] = default_directories[i];
	return found;
}

static int is_specification(const struct dirent *file)
{
	const char *end = strrchr(file->d_name, '.');

	return file->d_name[0] != '.' && end && (!strcmp(end, ".json") || !strcmp(end, ".yaml"));
}

/* Not alphasort, which asks the locale. */
static int by_name(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

/* The specification files of a directory, sorted. Returns their number, 0 where there is no such
 * directory, or -1. The caller frees each and the list. */
static int list_files(const char *directory, struct dirent ***files, struct jail_error *err)
{
	*files = NULL;
	int n = scandir(directory, files, is_specification, by_name);

	if (n >= 0)
		return n;
	if (errno == ENOENT)
		return 0;
	jail_fail(err, "opendir", errno, "cannot read the directory of CDI specifications");
	return jail_error_at(err, NULL, 0, directory);
}

static void free_files(struct dirent **files, int n)
{
	for (int i = 0; i < n; i++)
		free(files[i]);
	free(files);
}

static int read_text(int fd, char **text, size_t *length, struct jail_error *err)
{
	struct stat st;

	if (fstat(fd, &st))
		return jail_fail(err, "fstat", errno, "cannot read the CDI specification");
	if (!S_ISREG(st.st_mode) || st.st_size > FILE_MAX_BYTES)
		return jail_fail(err, NULL, 0, "a CDI specification must be a regular file of at most %d bytes",
				 FILE_MAX_BYTES);
	*text = malloc((size_t)st.st_size + 1);
	if (!*text)
		return jail_fail(err, "malloc", ENOMEM, "not enough memory to read the CDI specification");
	for (*length = 0; *length < (size_t)st.st_size;) {
		ssize_t got = pread(fd, *text + *length, (size_t)st.st_size - *length, (off_t)*length);
		if (got < 0)
			return jail_fail(err, "pread", errno, "cannot read the CDI specification");
		if (!got)
			break;
		*length += (size_t)got;
	}
	return 0;
}

static int read_file(const char *path, bool trust_owners, struct jail_cdi_spec *spec, struct jail_error *err)
{
	scoped_free char *text = NULL;
	size_t length = 0;
	scoped_fd fd = trust_owners ? sys_open(path, O_RDONLY | O_NONBLOCK)
				    : jail_open_trusted(path, 0, "CDI specification", err);

	if (fd < 0 && trust_owners)
		jail_fail(err, "open", errno, "cannot open the CDI specification");
	if (fd < 0 || read_text(fd, &text, &length, err))
		return jail_error_at(err, path, 0, NULL);
	return jail_cdi_spec_parse(text, length, path, spec, err);
}

/* What the search has seen so far. */
struct search {
	const char *name;      /* vendor/class=device */
	const char *device;    /* its last part */
	size_t kind_length;    /* of "vendor/class" in it */
	bool trust_owners;
	struct jail_cdi_found *found;
	char conflict[PATH_MAX]; /* a second file of the same directory */
	char known[160];       /* the names there are of this kind, for the error */
};

static bool same_kind(const struct search *search, const struct jail_cdi_spec *spec)
{
	return strlen(spec->kind) == search->kind_length && !strncmp(spec->kind, search->name, search->kind_length);
}

static void remember_names(struct search *search, const struct jail_cdi_spec *spec)
{
	for (size_t i = 0; i < spec->devices.n; i++) {
		size_t used = strlen(search->known);
		if (used + strlen(spec->devices.items[i].name) + 8 < sizeof(search->known))
			sprintf(search->known + used, "%s%s", used ? ", " : "", spec->devices.items[i].name);
	}
}

/* `first`: nothing of this directory defines the device yet. Takes the specification over, or frees it. */
static bool look_in(struct search *search, struct jail_cdi_spec *spec, bool first)
{
	struct jail_cdi_device *device = NULL;

	if (same_kind(search, spec)) {
		remember_names(search, spec);
		for (size_t i = 0; i < spec->devices.n && !device; i++)
			if (!strcmp(spec->devices.items[i].name, search->device))
				device = &spec->devices.items[i];
	}
	if (device && first) {
		jail_cdi_spec_free(&search->found->spec);
		*search->found = (struct jail_cdi_found){ *spec, device };
		search->conflict[0] = '\0';
		return true;
	}
	if (device)
		snprintf(search->conflict, sizeof(search->conflict), "%s", spec->file);
	jail_cdi_spec_free(spec);
	return device != NULL;
}

static int search_directory(struct search *search, const char *directory, struct jail_error *err)
{
	char path[PATH_MAX];
	struct dirent **files;
	bool here = false;
	int n = list_files(directory, &files, err), i = 0;

	for (; i < n; i++) {
		struct jail_cdi_spec spec;
		snprintf(path, sizeof(path), "%s/%s", directory, files[i]->d_name);
		if (read_file(path, search->trust_owners, &spec, err))
			break;
		here |= look_in(search, &spec, !here);
	}
	free_files(files, n);
	return n < 0 || i < n ? -1 : 0;
}

static int not_found(const struct search *search, const struct directories *directories, struct jail_error *err)
{
	char where[300] = "";

	for (size_t i = 0; i < directories->n; i++) {
		size_t used = strlen(where);
		snprintf(where + used, sizeof(where) - used, "%s%s", i ? " and " : "", directories->paths[i]);
	}
	if (search->known[0])
		return jail_fail(err, NULL, ENODEV, "no CDI specification in %s has this device; of its kind there are: %s",
				 where, search->known);
	return jail_fail(err, NULL, ENODEV, "no CDI specification in %s has a device of this kind; write one with the "
			 "vendor's tool (nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml), or add nofail", where);
}

int jail_cdi_find(const struct jail_entry *entry, bool trust_owners, struct jail_cdi_found *found,
		  struct jail_error *err)
{
	const struct directories directories = directories_of(entry);
	struct search search = { .name = entry->target, .trust_owners = trust_owners, .found = found };

	memset(found, 0, sizeof(*found));
	search.kind_length = strcspn(entry->target, "=");
	search.device = entry->target + search.kind_length + 1;
	int result = 0;
	for (size_t i = 0; i < directories.n && !result; i++)
		result = search_directory(&search, directories.paths[i], err);
	if (!result && !found->device)
		result = not_found(&search, &directories, err);
	else if (!result && search.conflict[0])
		result = jail_fail(err, NULL, 0, "both \"%.200s\" and \"%.200s\" define this device; remove it from one of them",
				   found->spec.file, search.conflict);
	if (result)
		jail_cdi_spec_free(&found->spec);
	return result;
}

static int visit_directory(const char *directory, int (*visit)(void *, const char *, struct jail_error *),
			   void *context, struct jail_error *err)
{
	char path[PATH_MAX];
	struct dirent **files;
	int result = visit(context, directory, err), n = list_files(directory, &files, err);

	if (n < 0)
		return -1;
	for (int i = 0; i < n && !result; i++) {
		snprintf(path, sizeof(path), "%s/%s", directory, files[i]->d_name);
		result = visit(context, path, err);
	}
	free_files(files, n);
	return result;
}

int jail_cdi_dependencies(const struct jail_entry *entry, int (*visit)(void *, const char *, struct jail_error *),
			  void *context, struct jail_error *err)
{
	const struct directories directories = directories_of(entry);

	for (size_t i = 0; i < directories.n; i++)
		if (visit_directory(directories.paths[i], visit, context, err))
			return -1;
	return 0;
}
