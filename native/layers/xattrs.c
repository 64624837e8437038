/* SPDX-License-Identifier: Apache-2.0 */
/* Packs a file's extended attributes into one piece of memory, and unpacks them. tar_pax.c, native/directory,
 * native/squashfs and native/volume call it. */
#define _GNU_SOURCE
#include "xattrs.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define HEAD (sizeof(uint16_t) + sizeof(uint32_t))
#define NAME_LONGEST 255
#define VALUE_LONGEST 65536

void image_xattrs_clear(struct image_xattrs *xattrs)
{
	xattrs->length = 0;
}

void image_xattrs_free(struct image_xattrs *xattrs)
{
	free(xattrs->data);
	*xattrs = (struct image_xattrs){ .length = 0 };
}

bool image_xattrs_next(const unsigned char *data, size_t length, size_t *offset, struct image_xattr *found)
{
	uint16_t name;
	uint32_t value;

	if (*offset >= length)
		return false;
	memcpy(&name, data + *offset, sizeof(name));
	memcpy(&value, data + *offset + sizeof(name), sizeof(value));
	found->name = (const char *)data + *offset + HEAD;
	found->name_length = name;
	found->value = data + *offset + HEAD + name;
	found->value_length = value;
	*offset += HEAD + name + value;
	return true;
}

static int compare(const char *name, size_t length, const struct image_xattr *other)
{
	size_t common = length < other->name_length ? length : other->name_length;
	int result = memcmp(name, other->name, common);

	return result ? result : (length > other->name_length) - (length < other->name_length);
}

/* Where `name` is (true) or belongs (false). */
static bool find_xattr(const struct image_xattrs *xattrs, const char *name, size_t length, size_t *at, size_t *after)
{
	struct image_xattr one;

	*after = 0;
	do {
		*at = *after;
		if (!image_xattrs_next(xattrs->data, xattrs->length, after, &one))
			return false;
	} while (compare(name, length, &one) > 0);
	return compare(name, length, &one) == 0;
}

void image_xattrs_remove(struct image_xattrs *xattrs, const char *name, size_t name_length)
{
	size_t at, after;

	if (!find_xattr(xattrs, name, name_length, &at, &after))
		return;
	memmove(xattrs->data + at, xattrs->data + after, xattrs->length - after);
	xattrs->length -= after - at;
}

int image_xattrs_set(struct image_xattrs *xattrs, const char *name, size_t name_length, const void *value,
		     size_t value_length)
{
	size_t at, after, size = HEAD + name_length + value_length;
	uint16_t name16 = (uint16_t)name_length;
	uint32_t value32 = (uint32_t)value_length;

	if (!name_length || name_length > NAME_LONGEST || value_length > VALUE_LONGEST ||
	    xattrs->length + size > IMAGE_XATTRS_LONGEST)
		return -1;
	image_xattrs_remove(xattrs, name, name_length);
	find_xattr(xattrs, name, name_length, &at, &after);
	if (xattrs->length + size > xattrs->capacity) {
		size_t capacity = 2 * (xattrs->length + size);
		unsigned char *data = realloc(xattrs->data, capacity);

		if (!data)
			return -1;
		xattrs->data = data;
		xattrs->capacity = capacity;
	}
	memmove(xattrs->data + at + size, xattrs->data + at, xattrs->length - at);
	memcpy(xattrs->data + at, &name16, sizeof(name16));
	memcpy(xattrs->data + at + sizeof(name16), &value32, sizeof(value32));
	memcpy(xattrs->data + at + HEAD, name, name_length);
	if (value_length)
		memcpy(xattrs->data + at + HEAD + name_length, value, value_length);
	xattrs->length += size;
	return 0;
}

bool image_xattr_is_kept(const char *name, size_t name_length)
{
	static const char *const machine[] = {
		"trusted.overlay.", "security.selinux", "security.ima", "security.evm",
		"system.nfs4_acl", "system.nfs4_dacl", "system.nfs4_sacl", "trusted.SGI_ACL_",
	};

	for (size_t i = 0; i < sizeof(machine) / sizeof(machine[0]); i++) {
		size_t length = strlen(machine[i]);

		if (name_length >= length && !memcmp(name, machine[i], length))
			return false;
	}
	return true;
}
