/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the files of a GPU driver in the usual directories, where a container runtime mounted them into a node that
 * is a container. jail_driver.c calls it.
 *
 * What is mounted is not told apart from what simply lies there: by name and content it is the driver all the same.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "native/base/elf_soname.h"
#include "driver.h"

#if defined(__x86_64__)
#define GNU "x86_64-linux-gnu"
#elif defined(__aarch64__)
#define GNU "aarch64-linux-gnu"
#endif

static const char *const usual_libraries[] = {
	"/usr/lib/" GNU, "/usr/lib64", "/usr/lib", "/usr/local/nvidia/lib64", "/usr/local/nvidia/lib",
};
static const char *const usual_programs[] = { "/usr/bin", "/usr/local/nvidia/bin" };

static const char *const programs[] = {
	"nvidia-smi", "nvidia-debugdump", "nvidia-cuda-mps-control", "nvidia-cuda-mps-server", "nvidia-persistenced",
};

/* What the driver's libraries are called before ".so". libnvidia-container is the toolkit's, not the driver's. */
static bool is_of_driver(const char *name)
{
	static const char *const whole[] = {
		"libcuda.so", "libcudadebugger.so", "libnvcuvid.so", "libnvoptix.so", "libGLX_nvidia.so", "libEGL_nvidia.so",
		"libGLESv1_CM_nvidia.so", "libGLESv2_nvidia.so", "libvdpau_nvidia.so",
	};

	if (!jail_cdi_is_library(name))
		return false;
	for (size_t i = 0; i < sizeof(whole) / sizeof(whole[0]); i++)
		if (!strncmp(name, whole[i], strlen(whole[i])))
			return true;
	return !strncmp(name, "libnvidia-", 10) && strncmp(name, "libnvidia-container", 19);
}

static int take_library(struct driver_set *set, const char *path, const char *name, struct jail_error *err)
{
	char real[PATH_MAX], soname[DRIVER_NAME_SIZE];
	struct stat st;

	if (!realpath(path, real) || stat(real, &st)) {
		/* Left behind by a driver that is gone. */
		if (errno == ENOENT)
			return driver_add_notice(set, err, "%s: left out: it leads nowhere", path);
		jail_fail(err, "realpath", errno, "cannot follow it to a file of the driver; remove or repair the link");
		return jail_error_at(err, NULL, 0, path);
	}
	const char *base = strrchr(real, '/') + 1;
	/* Empty files are what a runtime leaves where it mounted another version before. */
	if (!S_ISREG(st.st_mode) || !st.st_size)
		return 0;
	if (jail_elf_soname(real, soname, sizeof(soname)) != JAIL_ELF_OURS)
		return driver_add_notice(set, err, "%s: left out: no shared library for this kind of processor", path);
	if (driver_add_file(set, base, real, soname, false, err))
		return -1;
	return driver_add_link(set, name, base, err);
}

static int take_program(struct driver_set *set, const char *path, const char *name, struct jail_error *err)
{
	char real[PATH_MAX];
	struct stat st;

	if (!realpath(path, real) || stat(real, &st)) {
		if (errno == ENOENT || errno == ENOTDIR)
			return 0;
		jail_fail(err, "realpath", errno, "cannot follow it to a program of the driver; remove or repair the link");
		return jail_error_at(err, NULL, 0, path);
	}
	if (!S_ISREG(st.st_mode) || !st.st_size || !(st.st_mode & S_IXUSR))
		return 0;
	return driver_add_file(set, name, real, NULL, true, err);
}

typedef int visitor(struct driver_set *set, const char *path, const char *name, struct jail_error *err);

/* A directory that is not there has nothing. */
static int each_name(struct driver_set *set, const char *directory, bool (*wanted)(const char *), visitor *visit,
		     struct jail_error *err)
{
	char path[PATH_MAX];
	struct dirent *entry;
	int result = 0;
	DIR *names = opendir(directory);

	if (!names && (errno == ENOENT || errno == ENOTDIR))
		return 0;
	if (!names) {
		jail_fail(err, "opendir", errno, "cannot look for the driver's files there");
		return jail_error_at(err, NULL, 0, directory);
	}
	while (!result && (entry = readdir(names))) {
		if (!wanted(entry->d_name))
			continue;
		snprintf(path, sizeof(path), "%s/%s", directory, entry->d_name);
		result = visit(set, path, entry->d_name, err);
	}
	closedir(names);
	return result;
}

static bool is_device(const char *name)
{
	return !strncmp(name, "nvidia", 6);
}

static int take_device(struct driver_set *set, const char *path, const char *name, struct jail_error *err)
{
	struct stat st;

	(void)name;
	if (stat(path, &st) || !S_ISCHR(st.st_mode))
		return 0;
	if (set->n_injected_devices == DRIVER_MAX_FILES)
		return jail_fail(err, NULL, 0, "more than %d devices: no node has so many GPUs", DRIVER_MAX_FILES);
	if (!set->injected_devices)
		set->injected_devices = jail_arena_alloc(&set->arena, DRIVER_MAX_FILES * sizeof(*set->injected_devices));
	const char *kept = set->injected_devices ? jail_arena_copy(&set->arena, path, strlen(path)) : NULL;
	if (!kept)
		return jail_fail(err, "malloc", ENOMEM, "not enough memory for the list of devices");
	set->injected_devices[set->n_injected_devices++] = kept;
	return 0;
}

static int by_text(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int take_devices(struct driver_set *set, const char *dev, struct jail_error *err)
{
	char caps[PATH_MAX];

	snprintf(caps, sizeof(caps), "%s/nvidia-caps", dev);
	if (each_name(set, dev, is_device, take_device, err) || each_name(set, caps, is_device, take_device, err))
		return -1;
	if (set->n_injected_devices)
		qsort(set->injected_devices, set->n_injected_devices, sizeof(*set->injected_devices), by_text);
	return 0;
}

int driver_from_injected(struct driver_set *set, const struct driver_request *request, struct jail_error *err)
{
	const bool named = request->libraries.n, named_programs = request->programs.n;
	const char *const *folders = named ? request->libraries.items : usual_libraries;
	size_t n = named ? request->libraries.n : sizeof(usual_libraries) / sizeof(usual_libraries[0]);
	char path[PATH_MAX];

	for (size_t i = 0; i < n; i++)
		if (each_name(set, folders[i], is_of_driver, take_library, err))
			return -1;
	folders = named_programs ? request->programs.items : usual_programs;
	n = named_programs ? request->programs.n : sizeof(usual_programs) / sizeof(usual_programs[0]);
	for (size_t i = 0; set->n_files && i < n; i++)
		for (size_t j = 0; j < sizeof(programs) / sizeof(programs[0]); j++) {
			snprintf(path, sizeof(path), "%s/%s", folders[i], programs[j]);
			if (take_program(set, path, programs[j], err))
				return -1;
		}
	if (take_devices(set, request->dev, err))
		return -1;
	if (!set->n_files && set->n_injected_devices) {
		size_t devices = set->n_injected_devices;
		set->n_injected_devices = 0;
		return driver_add_notice(set, err, "%zu devices such as %s are here, but no library of a driver: GPUs are not "
					 "shown to jobs; have the container runtime inject the driver, or write a CDI "
					 "specification", devices, set->injected_devices[0]);
	}
	return 0;
}
