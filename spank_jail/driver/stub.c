/* SPDX-License-Identifier: Apache-2.0 */
/* Makes stubs, empty libraries, for those that this node's driver lacks. fill.c calls it.
 *
 * The jail's ld.so.cache is one for all nodes. If a library were missing here, ldconfig run by a job on this node
 * would drop its name, and nodes whose driver has the library would no longer find it.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "native/mount/resolve.h"
#include "native/base/scoped.h"
#include "driver.h"

/* The image has twenty. The directory is the jail's, so a user may have put any number there. */
#define MAX_STUBS 200

/* A library without any code, linked for the Makefile's TEMPLATE_SONAME, which is replaced by the name wanted. */
__asm__(".section .rodata\n"
	".balign 8\n"
	"stub_template_start: .incbin \"" STUB_TEMPLATE "\"\n"
	"stub_template_end: .balign 8\n"
	"stub_template_size: .quad stub_template_end - stub_template_start\n"
	".previous\n");
extern const char stub_template_start[];
extern const uint64_t stub_template_size;

char *driver_stub(const char *soname, size_t *size, struct jail_error *err)
{
	static const char place[] = TEMPLATE_SONAME;

	*size = (size_t)stub_template_size;
	char *library = malloc(*size);
	if (!library) {
		jail_fail(err, "malloc", ENOMEM, "not enough memory for a stub library");
		return NULL;
	}
	memcpy(library, stub_template_start, *size);
	char *name = memmem(library, *size, place, sizeof(place));
	if (!name || strlen(soname) >= sizeof(place)) {
		jail_fail(err, NULL, 0, "no stub can be made for \"%.100s\": names have at most %zu bytes", soname,
			  sizeof(place) - 1);
		free(library);
		return NULL;
	}
	memset(name, 0, sizeof(place));
	memcpy(name, soname, strlen(soname));
	return library;
}

static int make_stub(int lib64, const char *soname, struct jail_error *err)
{
	size_t size;

	/* The driver's own, or a link to it. */
	if (!faccessat(lib64, soname, F_OK, AT_SYMLINK_NOFOLLOW))
		return 0;
	scoped_free char *library = driver_stub(soname, &size, err);
	if (!library)
		return -1;
	scoped_fd fd = openat(lib64, soname, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0755);
	ssize_t written = fd < 0 ? -1 : write(fd, library, size);
	if (written == (ssize_t)size)
		return 0;
	jail_fail(err, fd < 0 ? "openat" : "write", written < 0 ? errno : ENOSPC, "cannot make the stub of a library that this "
		  "driver lacks");
	return jail_error_at(err, NULL, 0, soname);
}

/* Names of the jail's stubs: whole SONAMEs of the driver's kind. Its users may have put anything there. */
static bool is_soname(const char *name)
{
	size_t length = strlen(name);

	for (const char *c = name; *c; c++)
		if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._+-", *c))
			return false;
	return !strncmp(name, "lib", 3) && jail_cdi_is_library(name) && length < sizeof(TEMPLATE_SONAME);
}

static int stubs_of_jail(int lib64, const char *jail, struct jail_error *err)
{
	struct jail_error ignored;
	scoped_fd root = open(jail, O_PATH | O_DIRECTORY | O_CLOEXEC);
	scoped_fd found = root < 0 ? -1 : jail_resolve(root, JAIL_CDI_LIBRARY_DIRECTORY, O_DIRECTORY, &ignored);
	int fd = found < 0 ? -1 : openat(found, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *names = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *entry;
	int result = 0;

	/* No jail here, or one without the directory: then no cache has these names. */
	if (!names) {
		jail_close(&fd);
		return 0;
	}
	for (unsigned n = 0; n < MAX_STUBS && !result && (entry = readdir(names));) {
		if (entry->d_type != DT_REG || !is_soname(entry->d_name))
			continue;
		n++;
		result = make_stub(lib64, entry->d_name, err);
	}
	closedir(names);
	return result;
}

int driver_make_stubs(int lib64, const char *jail, struct jail_error *err)
{
	static const char *const usual[] = { SONAMES };

	for (size_t i = 0; i < sizeof(usual) / sizeof(usual[0]); i++)
		if (make_stub(lib64, usual[i], err))
			return -1;
	return jail ? stubs_of_jail(lib64, jail, err) : 0;
}
