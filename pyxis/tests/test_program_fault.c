/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the reasons given for a program that will not run in a container, and the passing of a cached
 * image by an import. */
#define _GNU_SOURCE
#include <elf.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "native/base/text.h"
#include "native/base/descriptor.h"
#include "native/base/scoped.h"
#include "native/testing/check.h"
#include "pyxis/step/image_descriptor.h"
#include "pyxis/step/program_fault.h"

static void write_file(const char *path, const void *text, size_t length, mode_t mode)
{
	scoped_fd fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	CHECK(fd >= 0 && write(fd, text, length) == (ssize_t)length && !fchmod(fd, mode));
}

static bool says(const char *word, const char *path, const char *wanted)
{
	scoped_free char *fault = pyxis_program_fault(word, path);

	return wanted ? fault && strstr(fault, wanted) && strstr(fault, "\n  next: ") : !fault;
}

static void check_names(void)
{
	CHECK(says("true", "/nowhere:/usr/bin:/bin", NULL) && says("/bin/true", NULL, NULL));
	CHECK(says("nothing", "/usr/bin:/bin", "there is no program nothing in the container"));
	CHECK(says("nothing", "", "PATH is not set there") && says("nothing", NULL, "not set"));
	CHECK(says("./nothing", "/bin", "no program ./nothing"));
	CHECK(says("/usr", "/bin", "/usr is a directory"));
	/* Slurm's to find; and the file of --multi-prog. */
	CHECK(says("bin/nothing", "/usr", NULL) && says("0 a\n1 b\n", "/usr/bin", NULL) && says("", "/bin", NULL));
}

static void check_files(void)
{
	char loader[] = "/no/such/loader";
	struct {
		Elf64_Ehdr header;
		Elf64_Phdr part;
		char loader[sizeof(loader)];
	} elf = { .header = { .e_phoff = sizeof(Elf64_Ehdr), .e_phnum = 1, .e_phentsize = sizeof(Elf64_Phdr) },
		  .part = { .p_type = PT_INTERP, .p_offset = sizeof(Elf64_Ehdr) + sizeof(Elf64_Phdr), .p_filesz = sizeof(loader) } };

	memcpy(elf.header.e_ident, ELFMAG, SELFMAG);
	memcpy(elf.loader, loader, sizeof(loader));
	elf.header.e_machine = EM_SPARCV9;
	write_file("foreign", &elf, sizeof(elf), 0755);
	CHECK(access("/proc/sys/fs/binfmt_misc/status", F_OK) == 0 || says("./foreign", NULL, "./foreign is a program for another machine"));
#if defined(__x86_64__) || defined(__aarch64__)
#if defined(__x86_64__)
	elf.header.e_machine = EM_X86_64;
#else
	elf.header.e_machine = EM_AARCH64;
#endif
	write_file("dynamic", &elf, sizeof(elf), 0755);
	CHECK(says("./dynamic", NULL, "needs the loader /no/such/loader, which is not"));
	/* What is no loader's name is none: too long, beyond the end, more headers than there are. */
	elf.part.p_filesz = UINT64_MAX;
	write_file("long", &elf, sizeof(elf), 0755);
	elf.part.p_filesz = 16;
	elf.part.p_offset = UINT64_MAX;
	write_file("beyond", &elf, sizeof(elf), 0755);
	elf.header.e_phoff = UINT64_MAX - 8;
	elf.header.e_phnum = UINT16_MAX;
	write_file("headers", &elf, sizeof(elf), 0755);
	CHECK(says("./long", NULL, NULL) && says("./beyond", NULL, NULL) && says("./headers", NULL, NULL));
#endif
	write_file("cut", &elf, 20, 0755);
	write_file("empty", "", 0, 0755);
	write_file("plain", "text\n", 5, 0644);
	CHECK(says("./cut", NULL, NULL) && says("./empty", NULL, NULL) && says("./plain", NULL, "./plain may not be executed"));
	write_file("script", "#!  /no/shell\001 -x\n", 18, 0755);
	write_file("usual", "#!/bin/sh\n", 10, 0755);
	write_file("bare", "#!", 2, 0755);
	CHECK(says("script", ".", "script is a script for /no/shell?, which is not") && says("usual", ".", NULL) && says("bare", ".", NULL));
}

static void check_handing(void)
{
	scoped_image_descriptor descriptor = PYXIS_IMAGE_DESCRIPTOR_NONE;
	struct jail_error err;
	struct stat st, same;
	int held = -1;
	bool found = true;

	CHECK(!pyxis_image_descriptor_begin(&descriptor, &err) && fcntl(descriptor.theirs, F_GETFD) == FD_CLOEXEC);
	/* An import that made a file, and handed nothing over, is not waited for. */
	CHECK(!pyxis_image_descriptor_receive(&descriptor, &held, &found) && held < 0 && !found);
	scoped_fd file = open("usual", O_RDONLY | O_CLOEXEC);
	CHECK(jail_descriptor_send(descriptor.theirs, file, "/cache/image.sqsh", 17));
	scoped_free char *path = pyxis_image_descriptor_receive(&descriptor, &held, &found);
	scoped_fd taken = held;
	CHECK(path && !found && !strcmp(path, "/cache/image.sqsh") && fcntl(taken, F_GETFD) == FD_CLOEXEC);
	CHECK(!fstat(file, &st) && !fstat(taken, &same) && st.st_ino == same.st_ino);
	CHECK(send(descriptor.theirs, "/without/a/descriptor", 21, 0) == 21);
	CHECK(!pyxis_image_descriptor_receive(&descriptor, &held, &found));
	/* Nothing was fetched. */
	CHECK(jail_descriptor_send(descriptor.theirs, file, "/a\0found", 8));
	scoped_free char *hit = pyxis_image_descriptor_receive(&descriptor, &held, &found);
	scoped_fd hit_held = held;
	CHECK(hit && found && !strcmp(hit, "/a") && hit_held >= 0);
	CHECK(jail_descriptor_send(descriptor.theirs, file, "/a\0lost!", 8));
	scoped_free char *miss = pyxis_image_descriptor_receive(&descriptor, &held, &found);
	scoped_fd miss_held = held;
	CHECK(miss && !found && miss_held >= 0);
}

int main(void)
{
	char folder[] = "/tmp/pyxis-program-XXXXXX";

	CHECK(mkdtemp(folder) && !chdir(folder));
	check_names();
	check_files();
	check_handing();
	static const char *const made[] = { "foreign", "dynamic", "long", "beyond", "headers", "cut", "empty", "plain", "script",
					    "usual", "bare" };
	for (size_t i = 0; i < sizeof(made) / sizeof(made[0]); i++)
		(void)unlink(made[i]);
	CHECK(!chdir("/") && !rmdir(folder));
	return check_result("program_fault");
}
