/* SPDX-License-Identifier: Apache-2.0 */
/* plugin-release PLUGIN VERSION: tells whether a SPANK plugin was built for that version of Slurm. Image builds run
 * it.
 *
 * Slurm's loader asks the same at a node's first job; an image's build asks earlier, with what `slurmd -V` prints.
 * The plugin is read as data, because loading it would need its slurmd. It is linked statically, because images may
 * have another C library than the compiler's.
 */
#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define SYMBOL "plugin_version"
#define EXIT_USAGE 2

struct image {
	const unsigned char *bytes;
	size_t size;
};

/* `count` bytes at `offset`, or NULL when the file has no such place. */
static const void *part(const struct image *image, uint64_t offset, uint64_t count)
{
	return offset <= image->size && count <= image->size - offset ? image->bytes + offset : NULL;
}

/* The number at address `address`, from the segment that holds it. */
static bool number_at(const struct image *image, const Elf64_Ehdr *header, uint64_t address, uint32_t *number)
{
	const Elf64_Phdr *segments = part(image, header->e_phoff, header->e_phnum * sizeof(*segments));

	for (size_t i = 0; segments && i < header->e_phnum; i++) {
		const Elf64_Phdr *segment = &segments[i];
		if (segment->p_type != PT_LOAD || address < segment->p_vaddr ||
		    address - segment->p_vaddr >= segment->p_filesz)
			continue;
		const void *found = part(image, segment->p_offset + (address - segment->p_vaddr), sizeof(*number));
		if (found)
			memcpy(number, found, sizeof(*number));
		return found != NULL;
	}
	return false;
}

static bool is_symbol(const struct image *image, const Elf64_Shdr *names, const Elf64_Sym *symbol)
{
	const char *name;

	if (symbol->st_shndx == SHN_UNDEF || symbol->st_name >= names->sh_size)
		return false;
	name = part(image, names->sh_offset + symbol->st_name, sizeof(SYMBOL));
	return name && !memcmp(name, SYMBOL, sizeof(SYMBOL));
}

/* What the symbol plugin_version of the shared object holds. */
static bool plugin_version(const struct image *image, uint32_t *version)
{
	const Elf64_Ehdr *header = part(image, 0, sizeof(*header));

	if (!header || memcmp(header->e_ident, ELFMAG, SELFMAG) || header->e_ident[EI_CLASS] != ELFCLASS64)
		return false;
	const Elf64_Shdr *sections = part(image, header->e_shoff, header->e_shnum * sizeof(*sections));
	for (size_t i = 0; sections && i < header->e_shnum; i++) {
		if (sections[i].sh_type != SHT_DYNSYM || sections[i].sh_link >= header->e_shnum)
			continue;
		const Elf64_Sym *symbols = part(image, sections[i].sh_offset, sections[i].sh_size);
		for (size_t n = 0; symbols && n < sections[i].sh_size / sizeof(*symbols); n++)
			if (is_symbol(image, &sections[sections[i].sh_link], &symbols[n]))
				return number_at(image, header, symbols[n].st_value, version);
	}
	return false;
}

static bool map(const char *path, struct image *image)
{
	struct stat st;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	void *bytes = MAP_FAILED;

	if (fd >= 0 && !fstat(fd, &st))
		bytes = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (bytes == MAP_FAILED)
		fprintf(stderr, "plugin-release: %s: %s\n", path, strerror(errno));
	if (fd >= 0)
		close(fd);
	*image = (struct image){ bytes, bytes == MAP_FAILED ? 0 : (size_t)st.st_size };
	return bytes != MAP_FAILED;
}

/* "slurm-wlm 24.11.5" and "slurm 24.11.5", by who packaged it. */
static bool parse_release(const char *text, unsigned *major, unsigned *minor)
{
	const char *number = text + strcspn(text, "0123456789");

	return sscanf(number, "%3u.%3u", major, minor) == 2;
}

int main(int argc, char *argv[])
{
	unsigned major, minor;
	struct image image;
	uint32_t version;

	if (argc != 3 || !parse_release(argv[2], &major, &minor)) {
		fprintf(stderr, "usage: plugin-release PLUGIN \"$(slurmd -V)\"\n");
		return EXIT_USAGE;
	}
	if (!map(argv[1], &image))
		return 1;
	if (!plugin_version(&image, &version)) {
		fprintf(stderr, "plugin-release: %s: no plugin of Slurm: it has no symbol " SYMBOL "\n", argv[1]);
		return 1;
	}
	/* Slurm's major.minor: micro releases share their plugins (SLURM_VERSION_NUM in slurm.h). */
	if ((version & 0xffff00) == (major << 16 | minor << 8))
		return 0;
	fprintf(stderr, "plugin-release: %s is built for Slurm %u.%02u, and this image has %s, which would not load it; "
		"compile it with the libslurm-dev of %u.%02u\n", argv[1], version >> 16 & 0xff, version >> 8 & 0xff,
		argv[2], major, minor);
	return 1;
}
