#define _GNU_SOURCE
#include "bundle.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../../spank_jail/core/scoped.h"
#include "../text/program.h"
#include "../text/report.h"
#include "command.h"
#include "output.h"
#include "start_options.h"
#include "unpack.h"

#define MAGIC "\nenroot bundle 1\n"
/* Of squashfs in a file: where the kernel could mount it through a loop device as well. */
#define ALIGNMENT 4096

/* Lies in the program's data; `enroot bundle` finds it in its own file by the magic and fills it in the copy. */
struct bundle_header {
	char magic[24];
	uint64_t offset; /* of the image in this file; 0: this is no bundle */
	char sha256[72]; /* of the image, in hex; empty: not to be checked */
	char description[512], target[512];
};
extern const volatile struct bundle_header bundle_header;
const volatile struct bundle_header bundle_header = { .magic = MAGIC };

/* A copy, byte by byte, because the compiler must not believe what it put there. The magic is never written down a
 * second time: it would be found in the file as well. */
static struct bundle_header own_header(void)
{
	struct bundle_header header = { .offset = 0 };

	for (size_t i = 0; i < sizeof(header); i++)
		((char *)&header)[i] = ((const volatile char *)&bundle_header)[i];
	return header;
}

/* The SHA-256 of `fd` from `offset` to its end. */
static int hash(int fd, off_t offset, char sha256[72], struct jail_error *err)
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

static int write_bundle(struct output *output, const char *image, struct bundle_header *header, bool checked,
			struct jail_error *err)
{
	if (append_file(output->fd, "/proc/self/exe", err))
		return -1;
	off_t size = lseek(output->fd, 0, SEEK_END);
	header->offset = ((uint64_t)size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
	if (lseek(output->fd, (off_t)header->offset, SEEK_SET) < 0)
		return jail_fail(err, "lseek", errno, "cannot write the bundle");
	if (append_file(output->fd, image, err) ||
	    (checked && hash(output->fd, (off_t)header->offset, header->sha256, err)))
		return -1;
	return fill_header(output->fd, size, header, err);
}

int command_bundle(int argc, char **argv)
{
	static const struct option names[] = {
		{ "all", no_argument, NULL, 'a' }, { "checksum", no_argument, NULL, 'c' },
		{ "desc", required_argument, NULL, 'd' }, { "output", required_argument, NULL, 'o' },
		{ "target", required_argument, NULL, 't' }, { "force", no_argument, NULL, 'f' },
		{ "help", no_argument, NULL, 'h' }, { NULL, 0, NULL, 0 },
	};
	struct bundle_header header = own_header();
	struct settings settings;
	struct output output;
	struct jail_error err;
	const char *given = NULL;
	int option;

	if (command_settings(&settings, NULL))
		return 1;
	bool all = settings_true(&settings, "ENROOT_BUNDLE_ALL"), checked = settings_true(&settings, "ENROOT_BUNDLE_CHECKSUM");
	bool force = settings_true(&settings, "ENROOT_FORCE_OVERRIDE");
	optind = 0;
	opterr = 0;
	while ((option = getopt_long(argc, argv, ":acd:o:t:fh", names, NULL)) != -1) {
		switch (option) {
		case 'a': all = true; break;
		case 'c': checked = true; break;
		case 'd': snprintf(header.description, sizeof(header.description), "%s", optarg); break;
		case 'o': given = optarg; break;
		case 't': snprintf(header.target, sizeof(header.target), "%s", optarg); break;
		case 'f': force = true; break;
		case 'h': return command_describe("bundle");
		case ':': return command_usage("bundle", "the option %s needs a value", argv[optind - 1]);
		default: return command_usage("bundle", "unknown option %s", argv[optind - 1]);
		}
	}
	if (optind + 1 != argc)
		return command_usage("bundle", "it takes one image");
	if (all)
		report_warning("--all: a bundle does not carry the user's configuration files yet");
	const char *image = argv[optind];
	if (!command_is_image(image))
		return report_error("%s: it is no squashfs image", image);
	size_t length = strlen(image) - (text_ends(image, ".sqsh") ? strlen(".sqsh") : 0);
	scoped_free char *file = given ? text_copy(given, strlen(given)) : text_format("%.*s.run", (int)length, image);
	int result = output_open(&output, file, force, &err) || write_bundle(&output, image, &header, checked, &err) ||
		     output_commit(&output, 0777, &err) ? -1 : 0;
	output_close(&output);
	return result ? report_failure(&err) : 0;
}

/* Options of a bundle besides start's, taken out of the arguments. */
struct own_options {
	bool info, keep, quiet, verbose, extract;
};

static int take_own(int argc, char **argv, struct own_options *own)
{
	static const char *const with_value[] = { "-c", "--conf", "-e", "--env", "--rc", "-m", "--mount" };
	int kept = 1;

	for (int i = 1; i < argc; i++) {
		const char *word = argv[i];
		bool *flag = !strcmp(word, "-i") || !strcmp(word, "--info") ? &own->info
			     : !strcmp(word, "-k") || !strcmp(word, "--keep") ? &own->keep
			     : !strcmp(word, "-q") || !strcmp(word, "--quiet") ? &own->quiet
			     : !strcmp(word, "-v") || !strcmp(word, "--verbose") ? &own->verbose
			     : !strcmp(word, "-x") || !strcmp(word, "--extract") ? &own->extract : NULL;
		if (flag) {
			*flag = true;
			continue;
		}
		argv[kept++] = argv[i];
		bool value = false;
		for (size_t j = 0; j < sizeof(with_value) / sizeof(with_value[0]); j++)
			value = value || !strcmp(word, with_value[j]);
		if (value && i + 1 < argc) {
			argv[kept++] = argv[++i];
		} else if (word[0] != '-' || !strcmp(word, "--")) {
			while (++i < argc)
				argv[kept++] = argv[i];
		}
	}
	argv[kept] = NULL;
	return kept;
}

static int check(const char *self, const struct bundle_header *header, struct jail_error *err)
{
	char sha256[72];
	scoped_fd fd = open(self, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return jail_fail(err, "open", errno, "cannot read the bundle");
	if (hash(fd, (off_t)header->offset, sha256, err))
		return -1;
	return strcmp(sha256, header->sha256) ? jail_fail(err, NULL, 0, "the image in this bundle is damaged: its SHA-256 is %s, "
							  "and was %s", sha256, header->sha256) : 0;
}

/* The image as a tree, where the user asks for it. */
static int extract(const char *self, const struct bundle_header *header, char **root, struct jail_error *err)
{
	struct settings settings;
	const char *slash = strrchr(self, '/');
	scoped_free char *target = header->target[0] ? text_format("%s", header->target) : text_format("%s.rootfs", slash + 1);

	if (command_settings(&settings, NULL))
		return -1;
	if (mkdir(target, 0700)) {
		jail_fail(err, "mkdir", errno, "cannot make the directory to extract to");
		return jail_error_at(err, NULL, 0, target);
	}
	*root = realpath(target, NULL);
	return unpack(self, header->offset, target, &settings, err);
}

static int run(const struct bundle_header *header, int argc, char **argv)
{
	struct own_options own = { 0 };
	struct start_options options;
	struct jail_error err;
	char *self = realpath("/proc/self/exe", NULL), *root = NULL;

	argc = take_own(argc, argv, &own);
	if (start_parse(argc, argv, &options))
		return 1;
	if (own.quiet)
		report_quiet();
	if (options.help)
		return printf("Usage: %s [options of enroot start] [-i] [-k] [-q] [-v] [-x] [--] [COMMAND] [ARG...]\n\n"
			      " -i, --info     what this is\n -k, --keep     extract, run and keep\n -q, --quiet    no messages\n"
			      " -v, --verbose  more messages\n -x, --extract  extract only\n", argv[0]) < 0;
	if (own.info) {
		puts(header->description[0] ? header->description : "(no description)");
		return 0;
	}
	if (!self)
		return report_error("cannot find this program's own file");
	if (header->sha256[0] && check(self, header, &err))
		return report_failure(&err);
	if (own.verbose)
		report_info("image at byte %llu of %s", (unsigned long long)header->offset, self);
	if ((own.keep || own.extract) && extract(self, header, &root, &err))
		return report_failure(&err);
	if (own.extract && !own.keep)
		return 0;
	return start_container(&options, root ? NULL : self, header->offset, root, options.rest);
}

bool bundle_is_one(int *status, int argc, char **argv)
{
	if (!bundle_header.offset)
		return false;
	const struct bundle_header header = own_header();
	*status = run(&header, argc, argv);
	return true;
}
