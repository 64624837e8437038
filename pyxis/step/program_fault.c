/* SPDX-License-Identifier: Apache-2.0 */
/* Explains why a task's program will not run in its container. pyxis/slurm calls it. */
#define _GNU_SOURCE
#include "program_fault.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "native/base/text.h"
#include "native/base/error.h"
#include "native/base/scoped.h"

#define MOST_HEADERS 64 /* of a program; usual are a dozen */

#if defined(__x86_64__)
#define MACHINE EM_X86_64
#define ALSO EM_386
#elif defined(__aarch64__)
#define MACHINE EM_AARCH64
#define ALSO EM_ARM
#else
#define MACHINE EM_NONE
#define ALSO EM_NONE
#endif

static const char *machine_name(unsigned machine)
{
	static const struct { unsigned machine; const char *name; } names[] = {
		{ EM_X86_64, "x86_64" }, { EM_AARCH64, "aarch64" }, { EM_386, "i386" }, { EM_ARM, "arm" }, { EM_PPC64, "ppc64le" },
		{ EM_S390, "s390x" }, { EM_RISCV, "riscv64" },
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (names[i].machine == machine)
			return names[i].name;
	return "another machine";
}

/* As execvp(3) looks, but for what it may run. */
static char *find(const char *word, const char *path)
{
	errno = ENOENT;
	if (*word == '/' || *word == '.')
		return access(word, F_OK) ? NULL : text_copy(word, strlen(word));
	for (const char *part = path; part && *part; part += strcspn(part, ":"), part += *part == ':') {
		char *file = text_format("%.*s/%s", (int)strcspn(part, ":"), part, word);
		if (!access(file, F_OK))
			return file;
		free(file);
	}
	return NULL;
}

/* What the kernel starts in its place: the loader of a dynamic program. NULL: none, or it cannot be told. */
static char *loader(int fd, const Elf64_Ehdr *header)
{
	char text[256] = "";

	for (unsigned i = 0; i < header->e_phnum && i < MOST_HEADERS; i++) {
		Elf64_Phdr part;
		if (pread(fd, &part, sizeof(part), (off_t)(header->e_phoff + i * sizeof(part))) != sizeof(part))
			return NULL;
		if (part.p_type != PT_INTERP || part.p_filesz >= sizeof(text))
			continue;
		return pread(fd, text, part.p_filesz, (off_t)part.p_offset) > 1 ? text_copy(text, strlen(text)) : NULL;
	}
	return NULL;
}

/* Others' programs may be run by an emulator that the kernel knows (binfmt_misc). */
static bool is_emulated(void)
{
	return !access("/proc/sys/fs/binfmt_misc/status", F_OK);
}

static char *elf_fault(const char *file, int fd, const Elf64_Ehdr *header)
{
	if (MACHINE != EM_NONE && header->e_machine != MACHINE && header->e_machine != ALSO && !is_emulated())
		return text_format("%s is a program for %s, and this node is %s\n  next: take an image that is there for %s", file,
				   machine_name(header->e_machine), machine_name(MACHINE), machine_name(MACHINE));
	if (header->e_machine != MACHINE || header->e_phentsize != sizeof(Elf64_Phdr))
		return NULL;
	scoped_free char *needs = loader(fd, header);
	if (!needs || !access(needs, F_OK))
		return NULL;
	/* The image's own words. */
	jail_one_line(needs);
	return text_format("%s needs the loader %s, which is not in the container\n  next: it was made for another system, or is mounted "
			   "from the node: take one of the image's own", file, needs);
}

static char *script_fault(const char *file, const char *text, size_t length)
{
	scoped_free char *line = text_copy(text, strnlen(text, length));

	line[strcspn(line, "\n")] = '\0';
	char *name = line + 2 + strspn(line + 2, " \t");
	name[strcspn(name, " \t\r")] = '\0';
	if (*name != '/' || !access(name, F_OK))
		return NULL;
	jail_one_line(name);
	return text_format("%s is a script for %s, which is not in the container\n  next: take an image that has it, or change the "
			   "script's first line", file, name);
}

char *pyxis_program_fault(const char *word, const char *path)
{
	union {
		Elf64_Ehdr elf;
		char text[256];
	} begin = { .text = "" };
	struct stat st;

	/* Of what --multi-prog has, one word is the whole file; and Slurm looks for a relative path in places of its own. */
	if (!*word || strchr(word, '\n') || (*word != '/' && *word != '.' && strchr(word, '/')))
		return NULL;
	scoped_free char *file = find(word, path);
	if (!file && errno == ENOENT)
		return text_format("there is no program %s in the container\n  next: name one that the image has; PATH is %s there", word,
				   path && *path ? path : "not set");
	if (!file || stat(file, &st))
		return NULL;
	if (S_ISDIR(st.st_mode))
		return text_format("%s is a directory in the container\n  next: name a program", file);
	if (!(st.st_mode & 0111))
		return text_format("%s may not be executed\n  next: chmod +x it, or give it to what runs it: sh %s", file, file);
	scoped_fd fd = open(file, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	ssize_t got = fd < 0 ? -1 : pread(fd, &begin, sizeof(begin), 0);
	if (got >= (ssize_t)sizeof(begin.elf) && !memcmp(begin.elf.e_ident, ELFMAG, SELFMAG))
		return elf_fault(file, fd, &begin.elf);
	return got > 2 && begin.text[0] == '#' && begin.text[1] == '!' ? script_fault(file, begin.text, (size_t)got) : NULL;
}
