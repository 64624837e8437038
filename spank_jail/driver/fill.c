/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the directory of a node's GPU driver from the list of its files: lib64, bin, a CDI specification and a
 * record of the origin. publish.c calls it. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "native/cdi/apply.h"
#include "native/base/scoped.h"
#include "native/base/sys.h"
#include "driver.h"

#define FILE_ATTRIBUTES (MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV)

static int open_part(int mount, const char *name, struct jail_error *err)
{
	int part = -1;

	if (sys_mkdirat(mount, name, 0755) || (part = openat(mount, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0)
		return jail_fail(err, "mkdirat", errno, "cannot make \"%s\" in the driver's directory", name);
	return part;
}

static int place_file(int part, const struct driver_file *file, struct jail_error *err)
{
	/* The place that the driver's own file is laid over: no byte of it is copied. */
	if (sys_mknodat(part, file->name, S_IFREG | 0444, 0)) {
		jail_fail(err, "mknodat", errno, "cannot make the place for it in the driver's directory");
		return jail_error_at(err, NULL, 0, file->name);
	}
	if (jail_cdi_bind(file->source, false, FILE_ATTRIBUTES, part, file->name, err))
		return jail_error_at(err, NULL, 0, file->source);
	return file->soname ? jail_cdi_link(part, file->soname, file->name, err) : 0;
}

/* Links lead to what is there; one whose name the driver itself has is no link. */
static int place_links(int lib64, const struct driver_set *set, struct jail_error *err)
{
	for (size_t i = 0; i < set->n_links; i++)
		if (jail_cdi_link(lib64, set->links[i].name, set->links[i].content, err))
			return -1;
	return 0;
}

static int write_text(int mount, const char *name, const char *text, struct jail_error *err)
{
	scoped_fd fd = openat(mount, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	size_t length = strlen(text);

	ssize_t written = fd < 0 ? -1 : write(fd, text, length);
	if (written == (ssize_t)length)
		return 0;
	/* A write that is cut short says nothing. */
	jail_fail(err, fd < 0 ? "openat" : "write", written < 0 ? errno : ENOSPC, "cannot write it into the driver's directory");
	return jail_error_at(err, NULL, 0, name);
}

int driver_fill(const struct driver_set *set, const struct driver_request *request, int mount, const char *where,
		const char *contents, struct jail_error *err)
{
	if (write_text(mount, ".contents", contents, err))
		return -1;
	/* A node without a driver: an empty directory, and the jail's own stubs stay in sight. */
	if (!set->n_files && !set->n_found)
		return 0;
	if (set->n_files) {
		scoped_fd lib64 = open_part(mount, "lib64", err);
		if (lib64 < 0)
			return -1;
		scoped_fd bin = open_part(mount, "bin", err);
		if (bin < 0)
			return -1;
		for (size_t i = 0; i < set->n_files; i++)
			if (place_file(set->files[i].program ? bin : lib64, &set->files[i], err))
				return -1;
		if (place_links(lib64, set, err) || driver_make_stubs(lib64, request->jail, err))
			return -1;
	}
	scoped_free char *spec = driver_spec(set, where, err);
	return spec ? write_text(mount, "driver.json", spec, err) : -1;
}

char *driver_contents(const struct driver_set *set, struct jail_error *err)
{
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);
	/* The same place for every generation: only what is in it counts here. */
	scoped_free char *spec = out ? driver_spec(set, "", err) : NULL;

	if (!out)
		jail_fail(err, "open_memstream", errno, "not enough memory to describe the driver");
	for (size_t i = 0; spec && i < set->n_files; i++) {
		const struct driver_file *file = &set->files[i];
		struct stat st;
		if (stat(file->source, &st)) {
			jail_fail(err, "stat", errno, "it was there a moment ago: is the driver being changed? Run this again "
				  "afterwards");
			jail_error_at(err, NULL, 0, file->source);
			jail_free(&spec);
			spec = NULL;
			break;
		}
		fprintf(out, "%s/%s %s %u:%u:%llu %lld %lld.%09ld %lld.%09ld\n", file->program ? "bin" : "lib64", file->name,
			file->source, major(st.st_dev), minor(st.st_dev), (unsigned long long)st.st_ino,
			(long long)st.st_size, (long long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec,
			(long long)st.st_ctim.tv_sec, st.st_ctim.tv_nsec);
	}
	for (size_t i = 0; spec && i < set->n_links; i++)
		fprintf(out, "lib64/%s -> %s\n", set->links[i].name, set->links[i].content);
	if (spec && (set->n_files || set->n_found))
		fputs(spec, out);
	else if (spec)
		fputs("no driver\n", out);
	if (out && fclose(out) && spec) {
		jail_fail(err, "fclose", errno, "not enough memory to describe the driver");
		jail_free(&spec);
		spec = NULL;
	}
	if (spec)
		return text;
	free(text);
	return NULL;
}
