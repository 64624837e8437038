/* SPDX-License-Identifier: Apache-2.0 */
/* Implements `enroot bundle`: copies this program to a file and appends an image, so that the file runs as that
 * container. bundle_run.c and main.c call it. */
#define _GNU_SOURCE
#include "bundle.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include "native/base/scoped.h"
#include "enroot/container/bundled_config.h"
#include "native/base/program.h"
#include "native/base/report.h"
#include "command.h"
#include "options.h"
#include "native/base/atomic_file.h"

#define MAGIC "\nenroot bundle 2\n"
/* Of squashfs in a file: where the kernel could mount it through a loop device as well. */
#define ALIGNMENT 4096

/* Lies in the program's data; `enroot bundle` finds it in its own file by the magic and fills it in the copy. */
extern const volatile struct bundle_header bundle_header;
const volatile struct bundle_header bundle_header = { .magic = MAGIC };

/* A copy, byte by byte, because the compiler must not believe what it put there. The magic is never written down a
 * second time: it would be found in the file as well. */
struct bundle_header bundle_own_header(void)
{
	struct bundle_header header = { .offset = 0 };

	for (size_t i = 0; i < sizeof(header); i++)
		((char *)&header)[i] = ((const volatile char *)&bundle_header)[i];
	return header;
}

int bundle_hash(int fd, off_t offset, char sha256[72], struct jail_error *err)
{
	char *const arguments[] = { (char *)(uintptr_t)"sha256sum", NULL };
	scoped_buffer output = { 0 };
	const struct program program = { .arguments = arguments, .output = &output, .input = fd };

	if (lseek(fd, offset, SEEK_SET) < 0)
		return jail_fail(err, "lseek", errno, "cannot read the image");
	int status = program_run(&program, err);
	if (status < 0)
		return -1;
	if (status || output.length < 64)
		return jail_fail(err, NULL, 0, "sha256sum ended with status %d", status);
	snprintf(sha256, 72, "%.64s", output.text);
	return 0;
}

static int append_file(int to, const char *path, struct jail_error *err)
{
	scoped_fd from = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t done = from < 0 ? -1 : 1;

	while (done > 0)
		done = sendfile(to, from, NULL, 1 << 30);
	if (done < 0) {
		jail_fail(err, from < 0 ? "open" : "sendfile", errno, "cannot copy it into the bundle");
		return jail_error_at(err, NULL, 0, path);
	}
	return 0;
}

static int fill_header(int fd, off_t size, const struct bundle_header *header, struct jail_error *err)
{
	char *program = mmap(NULL, (size_t)size, PROT_READ, MAP_PRIVATE, fd, 0);

	if (program == MAP_FAILED)
		return jail_fail(err, "mmap", errno, "cannot read the program");
	char *found = memmem(program, (size_t)size, header->magic, sizeof(header->magic));
	off_t place = found ? found - program : -1;
	if (found && memmem(found + 1, (size_t)(size - place - 1), header->magic, sizeof(header->magic)))
		place = -1;
	munmap(program, (size_t)size);
	if (place < 0)
		return jail_fail(err, NULL, 0, "this program has not one place for a bundle's header");
	return pwrite(fd, header, sizeof(*header), place) == sizeof(*header) ? 0
	       : jail_fail(err, "pwrite", errno, "cannot write the bundle");
}

/* The program, the configuration files if there are any, and from a multiple of ALIGNMENT on the image. */
static int write_bundle(struct atomic_file *output, const char *image, const struct text_buffer *files,
			struct bundle_header *header, bool checked, struct jail_error *err)
{
	if (append_file(output->fd, "/proc/self/exe", err))
		return -1;
	off_t size = lseek(output->fd, 0, SEEK_END);
	header->files_offset = (uint64_t)size;
	header->files_length = files->length;
	if (files->length && text_write(output->fd, files->text, files->length))
		return jail_fail(err, "write", errno, "cannot write the bundle");
	header->offset = ((uint64_t)size + files->length + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
	if (lseek(output->fd, (off_t)header->offset, SEEK_SET) < 0)
		return jail_fail(err, "lseek", errno, "cannot write the bundle");
	if (append_file(output->fd, image, err) ||
	    (checked && bundle_hash(output->fd, (off_t)header->offset, header->sha256, err)))
		return -1;
	return fill_header(output->fd, size, header, err);
}

int command_bundle(int argc, char **argv)
{
	struct bundle_header header = bundle_own_header();
	struct settings settings;
	struct atomic_file output;
	struct jail_error err;
	scoped_buffer files = { 0 };
	const char *given = NULL, *description = "", *target = "", *image;
	bool all = false, checked = false, force = false;
	const struct command_option options[] = {
		{ .name = "all", .letter = 'a', .flag = &all },	      { .name = "checksum", .letter = 'c', .flag = &checked },
		{ .name = "desc", .letter = 'd', .value = &description }, { .name = "output", .letter = 'o', .value = &given },
		{ .name = "target", .letter = 't', .value = &target },    { .name = "force", .letter = 'f', .flag = &force },
		{ .name = NULL },
	};
	int status = command_begin(argc, argv, options, "it takes one image", &image, &settings);

	if (status >= 0)
		return status;
	if (strlen(description) >= sizeof(header.description) || strlen(target) >= sizeof(header.target))
		return command_usage("bundle", "--desc and --target take at most %zu bytes", sizeof(header.target) - 1);
	all = all || settings_true(&settings, "ENROOT_BUNDLE_ALL");
	checked = checked || settings_true(&settings, "ENROOT_BUNDLE_CHECKSUM");
	force = force || settings_true(&settings, "ENROOT_FORCE_OVERRIDE");
	snprintf(header.description, sizeof(header.description), "%s", description);
	snprintf(header.target, sizeof(header.target), "%s", target);
	int unfit = command_check_image(image);
	if (unfit)
		return unfit > 0 ? 1 : report_error("%s: there is no such file", image);
	if (all && bundled_config_pack(settings_get(&settings, "ENROOT_CONFIG_PATH"), &files, &err))
		return report_failure(&err);
	size_t length = strlen(image) - (text_ends(image, ".sqsh") ? strlen(".sqsh") : 0);
	scoped_free char *file = given ? text_copy(given, strlen(given)) : text_format("%.*s.run", (int)length, image);
	int result = atomic_file_open(&output, file, force, &err) ||
		     write_bundle(&output, image, &files, &header, checked, &err) || atomic_file_commit(&output, 0777, &err) ? -1 : 0;
	atomic_file_close(&output);
	return result ? report_failure(&err) : 0;
}
