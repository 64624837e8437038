/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the SONAME of a shared object from its ELF headers. native/cdi and spank_jail/driver call it. */
#define _GNU_SOURCE
#include "elf_soname.h"

#include <elf.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "scoped.h"

/* The dynamic section of a driver's library has some 30 entries, its program headers are about ten. */
#define MAX_DYNAMIC 256
#define MAX_HEADERS 64

#if defined(__x86_64__)
#define OUR_MACHINE EM_X86_64
#elif defined(__aarch64__)
#define OUR_MACHINE EM_AARCH64
#else
#error "name this architecture's ELF machine here; it must be a 64-bit one"
#endif

struct object {
	int fd;
	Elf64_Phdr headers[MAX_HEADERS];
	size_t n_headers;
};

static bool read_at(int fd, void *buffer, size_t size, Elf64_Off offset)
{
	return pread(fd, buffer, size, (off_t)offset) == (ssize_t)size;
}

static bool read_headers(struct object *object)
{
	Elf64_Ehdr header;

	if (!read_at(object->fd, &header, sizeof(header), 0) || memcmp(header.e_ident, ELFMAG, SELFMAG) ||
	    header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_machine != OUR_MACHINE || header.e_type != ET_DYN ||
	    header.e_phentsize != sizeof(object->headers[0]) || header.e_phnum > MAX_HEADERS)
		return false;
	object->n_headers = header.e_phnum;
	return read_at(object->fd, object->headers, object->n_headers * sizeof(object->headers[0]), header.e_phoff);
}

/* The dynamic section names things by their address in memory; the loaded segments say where that is
 * in the file. 0: nowhere. */
static Elf64_Off file_offset(const struct object *object, Elf64_Addr address)
{
	for (size_t i = 0; i < object->n_headers; i++) {
		const Elf64_Phdr *segment = &object->headers[i];
		if (segment->p_type == PT_LOAD && address >= segment->p_vaddr &&
		    address - segment->p_vaddr < segment->p_filesz)
			return segment->p_offset + (address - segment->p_vaddr);
	}
	return 0;
}

static void read_soname(const struct object *object, const Elf64_Phdr *segment, char *soname, size_t size)
{
	Elf64_Dyn entries[MAX_DYNAMIC];
	size_t n = segment->p_filesz / sizeof(entries[0]);
	Elf64_Addr strings = 0, name = 0;
	bool named = false;

	n = n < MAX_DYNAMIC ? n : MAX_DYNAMIC;
	if (!read_at(object->fd, entries, n * sizeof(entries[0]), segment->p_offset))
		return;
	for (size_t i = 0; i < n && entries[i].d_tag != DT_NULL; i++) {
		if (entries[i].d_tag == DT_STRTAB)
			strings = entries[i].d_un.d_ptr;
		if (entries[i].d_tag == DT_SONAME) {
			name = entries[i].d_un.d_val;
			named = true;
		}
	}
	Elf64_Off offset = named && strings ? file_offset(object, strings + name) : 0;
	ssize_t got = offset ? pread(object->fd, soname, size, (off_t)offset) : 0;
	/* A name that is cut short, or that is a path, is none. */
	if (got <= 0 || !memchr(soname, '\0', (size_t)got) || strchr(soname, '/'))
		*soname = '\0';
}

enum jail_elf jail_elf_soname(const char *path, char *soname, size_t size)
{
	scoped_fd fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	struct object object = { .fd = fd };

	*soname = '\0';
	if (fd < 0 || !read_headers(&object))
		return JAIL_ELF_FOREIGN;
	for (size_t i = 0; i < object.n_headers; i++)
		if (object.headers[i].p_type == PT_DYNAMIC)
			read_soname(&object, &object.headers[i], soname, size);
	return JAIL_ELF_OURS;
}
