/* SPDX-License-Identifier: Apache-2.0 */
/* Finds where each file of an uncompressed tar archive lies, so that it can be read alone. image_files.c calls it. */
#define _GNU_SOURCE
#include "tar_index.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "native/base/scoped.h"
#include "native/layers/tar_header.h"

/* Archives of images hold a few files for each layer. */
#define MEMBERS_MOST 100000
#define PAX_MOST ((size_t)1 << 20)
#define LINKS_MOST 8

void tar_index_free(struct tar_index *index)
{
	for (size_t i = 0; i < index->n; i++) {
		free(index->members[i].name);
		free(index->members[i].link);
	}
	free(index->members);
	*index = (struct tar_index){ NULL, 0, 0 };
}

static int wrong_tar(const char *name, unsigned long long offset, const char *message, struct jail_error *err)
{
	jail_fail(err, NULL, 0, "it is no archive of an image: %s at byte %llu", message, offset);
	return jail_error_at(err, NULL, 0, name);
}

static ssize_t read_at(int fd, void *data, size_t length, unsigned long long offset)
{
	size_t done = 0;

	while (done < length) {
		ssize_t got = pread(fd, (char *)data + done, length - done, (off_t)(offset + done));

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return -1;
		if (!got)
			break;
		done += (size_t)got;
	}
	return (ssize_t)done;
}

/* Without "./" before it. */
static char *clean(const char *name, size_t length)
{
	char path[IMAGE_PATH_LONGEST + 1];
	size_t cleaned;
	struct image_error ignored;

	if (length > IMAGE_PATH_LONGEST || tar_clean(name, length, path, &cleaned, &ignored))
		return NULL;
	return text_copy(path, cleaned);
}

/* A link's text as a name of the archive: "../x.tar" beside "a/layer.tar" is "x.tar". */
static char *resolve(const char *from, const char *text)
{
	const char *slash = strrchr(from, '/');
	size_t folder = *text == '/' || !slash ? 0 : (size_t)(slash - from);

	while (text_starts(text, "../") || text_starts(text, "./")) {
		if (text[1] == '.' && folder) {
			const char *above = memrchr(from, '/', folder);
			folder = above ? (size_t)(above - from) : 0;
		}
		text = strchr(text, '/') + 1;
	}
	scoped_free char *path = text_format("%.*s/%s", (int)folder, from, text);
	return clean(path, strlen(path));
}

static void add(struct tar_index *index, const struct tar_header *header, const struct tar_attributes *pax,
		unsigned long long offset, unsigned long long length)
{
	bool ustar = !memcmp(header->magic, "ustar", 6);
	scoped_free char *prefix = text_copy(header->prefix, ustar ? strnlen(header->prefix, sizeof(header->prefix)) : 0);
	scoped_free char *base = text_copy(header->name, strnlen(header->name, sizeof(header->name)));
	scoped_free char *whole = pax->set & TAR_PATH ? text_copy(pax->path, pax->path_length)
						      : text_format("%s%s%s", prefix, *prefix ? "/" : "", base);
	scoped_free char *target = pax->set & TAR_LINK ? text_copy(pax->link, pax->link_length)
						       : text_copy(header->link, strnlen(header->link, sizeof(header->link)));
	struct tar_member member = { .name = clean(whole, strlen(whole)), .offset = offset, .length = length };

	if (!member.name)
		return;
	if (header->type == '2')
		member.link = resolve(member.name, target);
	else if (header->type == '1')
		member.link = clean(target, strlen(target));
	if (index->n == index->capacity) {
		index->capacity = index->capacity ? 2 * index->capacity : 64;
		index->members = reallocarray(index->members, index->capacity, sizeof(member));
		if (!index->members)
			abort();
	}
	index->members[index->n++] = member;
}

/* One member, and what is said about it before. Returns 1, 0 at the end, or -1. */
static int read_member(struct tar_index *index, int fd, unsigned long long *at, const char *name, struct text_buffer *pax,
		       struct tar_attributes *attributes, struct jail_error *err)
{
	struct tar_header header;
	struct image_error fault;
	int64_t size;
	ssize_t got = read_at(fd, &header, sizeof(header), *at);

	if (got < 0)
		return wrong_tar(name, *at, "it cannot be read", err);
	if (!got || (got == sizeof(header) && !header.name[0] && !header.checksum[0]))
		return 0;
	if (got < (ssize_t)sizeof(header) || !tar_checksum_is_right(&header) ||
	    tar_number(header.size, sizeof(header.size), &size) || size < 0)
		return wrong_tar(name, *at, "there is no header of a tar", err);
	*at += sizeof(header);
	if (header.type == 'x') {
		if ((size_t)size > PAX_MOST)
			return wrong_tar(name, *at, "a header is too long", err);
		free(pax->text);
		*pax = (struct text_buffer){ .text = malloc((size_t)size + 1), .length = (size_t)size };
		if (!pax->text || read_at(fd, pax->text, pax->length, *at) != (ssize_t)pax->length ||
		    tar_pax(pax->text, pax->length, attributes, &fault))
			return wrong_tar(name, *at, "a header is damaged", err);
	} else if (strchr("012", header.type) || !header.type) {
		if (attributes->set & TAR_SIZE)
			size = (int64_t)attributes->size;
		add(index, &header, attributes, *at, (unsigned long long)size);
	}
	if (header.type != 'x')
		tar_attributes_clear(attributes);
	*at += ((unsigned long long)size + TAR_RECORD - 1) & ~(unsigned long long)(TAR_RECORD - 1);
	return 1;
}

int tar_index_read(struct tar_index *index, int fd, const char *name, struct jail_error *err)
{
	struct tar_attributes attributes = { .set = 0 };
	struct text_buffer pax = { NULL, 0, 0 };
	unsigned long long at = 0;
	int got;

	while ((got = read_member(index, fd, &at, name, &pax, &attributes, err)) > 0)
		if (index->n > MEMBERS_MOST) {
			got = wrong_tar(name, at, "it has too many files", err);
			break;
		}
	tar_attributes_free(&attributes);
	text_buffer_free(&pax);
	if (!got && !index->n)
		return wrong_tar(name, 0, "it is empty", err);
	return got;
}

const struct tar_member *tar_index_find(const struct tar_index *index, const char *name)
{
	scoped_free char *wanted = clean(name, strlen(name));

	for (int links = 0; wanted && links < LINKS_MOST; links++) {
		const struct tar_member *found = NULL;

		/* Of two the later counts. */
		for (size_t i = 0; i < index->n; i++)
			if (!strcmp(index->members[i].name, wanted))
				found = &index->members[i];
		if (!found || !found->link)
			return found;
		free(wanted);
		wanted = text_copy(found->link, strlen(found->link));
	}
	return NULL;
}
