/* SPDX-License-Identifier: Apache-2.0 */
/* Parses pax extended headers of a tar archive, which hold long names, sizes and extended
 * attributes. tar.c calls it. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "tar_header.h"

#define HAS_PREFIX(key, length, prefix) \
	((length) > sizeof(prefix) - 1 && !memcmp(key, prefix, sizeof(prefix) - 1))
#define IS(key, length, name) ((length) == sizeof(name) - 1 && !memcmp(key, name, sizeof(name) - 1))

#define XATTRS_MOST 1000

void tar_attributes_clear(struct tar_attributes *attributes)
{
	struct tar_attributes kept = { .extents = attributes->extents, .capacity = attributes->capacity,
				       .xattrs = attributes->xattrs };

	image_xattrs_clear(&kept.xattrs);
	*attributes = kept;
}

void tar_attributes_free(struct tar_attributes *attributes)
{
	free(attributes->extents);
	image_xattrs_free(&attributes->xattrs);
	*attributes = (struct tar_attributes){ .set = 0 };
}

int tar_add_extent(struct tar_attributes *attributes, uint64_t offset, uint64_t length)
{
	if (attributes->n_extents == attributes->capacity) {
		size_t capacity = attributes->capacity ? 2 * attributes->capacity : 16;
		struct image_extent *extents;

		if (capacity > TAR_EXTENTS_MOST)
			return -1;
		extents = reallocarray(attributes->extents, capacity, sizeof(*extents));
		if (!extents)
			return -1;
		attributes->extents = extents;
		attributes->capacity = capacity;
	}
	attributes->extents[attributes->n_extents++] = (struct image_extent){ offset, length };
	return 0;
}

int tar_decimal(const char *text, size_t length, uint64_t *value)
{
	*value = 0;
	if (!length || length > 19)
		return -1;
	for (size_t i = 0; i < length; i++) {
		if (text[i] < '0' || text[i] > '9')
			return -1;
		*value = *value * 10 + (uint64_t)(text[i] - '0');
	}
	return *value > INT64_MAX ? -1 : 0;
}

/* Seconds with a fraction of any length, maybe negative, as nanoseconds, rounded down. */
static int read_time(const char *text, size_t length, int64_t *ns)
{
	const char *dot = memchr(text, '.', length);
	bool negative = length && text[0] == '-';
	size_t whole = dot ? (size_t)(dot - text) : length;
	uint64_t seconds;
	int64_t fraction = 0, scale = 100000000;
	bool rest = false;

	/* 2^63 ns are 292 years: no time of a file that anyone keeps lies further off. */
	if (tar_decimal(text + negative, whole - negative, &seconds) || seconds > INT64_MAX / 1000000000 - 1)
		return -1;
	for (size_t i = whole + 1; i < length; i++) {
		if (text[i] < '0' || text[i] > '9')
			return -1;
		fraction += (text[i] - '0') * scale;
		rest |= !scale && text[i] != '0';
		scale /= 10;
	}
	*ns = (int64_t)seconds * 1000000000 + fraction;
	if (negative)
		*ns = -*ns - rest;
	return 0;
}

/* Form 0.1: "offset,length,offset,length". */
static int read_map(const char *text, size_t length, struct tar_attributes *to)
{
	uint64_t offset = 0, value;
	bool second = false;

	for (const char *end = text + length; text < end; second = !second) {
		const char *comma = memchr(text, ',', (size_t)(end - text));
		const char *stop = comma ? comma : end;

		if (tar_decimal(text, (size_t)(stop - text), &value) || (second && tar_add_extent(to, offset, value)))
			return -1;
		offset = value;
		text = comma ? comma + 1 : end;
	}
	return second ? -1 : 0;
}

static int sparse_record(const char *key, size_t key_length, const char *value, size_t length,
			 struct tar_attributes *to)
{
	uint64_t number;

	if (IS(key, key_length, "name")) {
		to->set |= TAR_SPARSE_NAME;
		to->sparse_name = value;
		to->sparse_name_length = length;
		return 0;
	}
	if (IS(key, key_length, "map")) {
		to->set |= TAR_SPARSE_MAP;
		to->n_extents = 0;
		return read_map(value, length, to);
	}
	if (tar_decimal(value, length, &number))
		return -1;
	if (IS(key, key_length, "major")) {
		to->sparse_major = (unsigned)number;
	} else if (IS(key, key_length, "minor")) {
		to->sparse_minor = (unsigned)number;
	} else if (IS(key, key_length, "size") || IS(key, key_length, "realsize")) {
		to->set |= TAR_SPARSE_SIZE;
		to->sparse_size = number;
	} else if (IS(key, key_length, "numblocks")) {
		to->set |= TAR_SPARSE_COUNT;
		to->sparse_count = number;
	} else if (IS(key, key_length, "offset")) {
		if (to->has_offset)
			return -1;
		to->offset = number;
		to->has_offset = true;
	} else if (IS(key, key_length, "numbytes")) {
		if (!to->has_offset || tar_add_extent(to, to->offset, number))
			return -1;
		to->has_offset = false;
	}
	return 0;
}

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c |= 32;
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* LIBARCHIVE.xattr.NAME: the name percent-encoded, the value base64 without padding. */
static int libarchive_xattr(const char *key, size_t key_length, const char *value, size_t length,
			    struct tar_attributes *to)
{
	char name[256];
	unsigned char *bytes = malloc(length + 1);
	size_t n = 0, size = 0;
	unsigned bits = 0, have = 0;
	int result;

	for (size_t i = 0; bytes && i < key_length && n < sizeof(name); i++) {
		if (key[i] == '%' && i + 2 < key_length && hex_digit(key[i + 1]) >= 0 && hex_digit(key[i + 2]) >= 0) {
			name[n++] = (char)(hex_digit(key[i + 1]) * 16 + hex_digit(key[i + 2]));
			i += 2;
		} else {
			name[n++] = key[i];
		}
	}
	for (size_t i = 0; bytes && i < length && value[i] != '='; i++) {
		static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
		const char *digit = value[i] ? strchr(digits, value[i]) : NULL;

		if (!digit) {
			free(bytes);
			return -1;
		}
		bits = bits << 6 | (unsigned)(digit - digits);
		have += 6;
		if (have >= 8) {
			have -= 8;
			bytes[size++] = (unsigned char)(bits >> have);
		}
	}
	if (!bytes || memchr(name, 0, n))
		result = -1;
	else
		result = image_xattr_is_kept(name, n) ? image_xattrs_set(&to->xattrs, name, n, bytes, size) : 0;
	free(bytes);
	return result;
}

/* One `key=value`. An empty value takes back what a global header said. */
static int record(const char *key, size_t key_length, const char *value, size_t length, struct tar_attributes *to)
{
	static const struct { const char *name; unsigned bit; } names[] = {
		{ "path", TAR_PATH }, { "linkpath", TAR_LINK }, { "size", TAR_SIZE },
		{ "uid", TAR_UID }, { "gid", TAR_GID }, { "mtime", TAR_MTIME },
	};
	unsigned bit = 0;

	/* Each is looked for among those before it. Linux has room for some thousand names, and no file has a hundred. */
	if ((HAS_PREFIX(key, key_length, "SCHILY.xattr.") || HAS_PREFIX(key, key_length, "LIBARCHIVE.xattr.")) &&
	    ++to->n_xattrs > XATTRS_MOST)
		return -1;
	if (HAS_PREFIX(key, key_length, "SCHILY.xattr.")) {
		key += strlen("SCHILY.xattr.");
		key_length -= strlen("SCHILY.xattr.");
		if (memchr(key, 0, key_length))
			return -1;
		if (!image_xattr_is_kept(key, key_length))
			return 0;
		return image_xattrs_set(&to->xattrs, key, key_length, value, length);
	}
	if (HAS_PREFIX(key, key_length, "LIBARCHIVE.xattr."))
		return libarchive_xattr(key + strlen("LIBARCHIVE.xattr."), key_length - strlen("LIBARCHIVE.xattr."),
					value, length, to);
	if (HAS_PREFIX(key, key_length, "GNU.sparse."))
		return sparse_record(key + strlen("GNU.sparse."), key_length - strlen("GNU.sparse."), value, length,
				     to);
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (key_length == strlen(names[i].name) && !memcmp(key, names[i].name, key_length))
			bit = names[i].bit;
	to->set &= ~bit;
	if (!length || !bit)
		return 0;
	to->set |= bit;
	switch (bit) {
	case TAR_PATH:
		to->path = value;
		to->path_length = length;
		return 0;
	case TAR_LINK:
		to->link = value;
		to->link_length = length;
		return 0;
	case TAR_MTIME:
		return read_time(value, length, &to->mtime_ns);
	case TAR_SIZE:
		return tar_decimal(value, length, &to->size);
	case TAR_UID:
		return tar_decimal(value, length, &to->uid);
	default:
		return tar_decimal(value, length, &to->gid);
	}
}

static bool is_text_acl(const char *key, size_t length)
{
	return HAS_PREFIX(key, length, "SCHILY.acl.");
}

int tar_pax(const char *text, size_t length, struct tar_attributes *to, struct image_error *err)
{
	if (!length)
		return 0; /* and there may be no text either */
	/* "LENGTH KEY=VALUE\n", where LENGTH counts all of it. */
	for (const char *end = text + length; text < end;) {
		size_t left = (size_t)(end - text);
		const char *space = memchr(text, ' ', left < 20 ? left : 20), *equals;
		uint64_t size;

		if (!space || tar_decimal(text, (size_t)(space - text), &size) || size > left ||
		    size < (size_t)(space - text) + 4 || text[size - 1] != '\n')
			return image_fail(err, IMAGE_FAULT_SOURCE, "", "malformed pax header: a record's length is wrong");
		equals = memchr(space + 1, '=', (size_t)(text + size - space) - 2);
		if (!equals || equals == space + 1)
			return image_fail(err, IMAGE_FAULT_SOURCE, "", "malformed pax header: a record has no key");
		size_t key = (size_t)(equals - space) - 1, value = (size_t)(text + size - equals) - 2;

		if (is_text_acl(space + 1, key))
			return image_fail(err, IMAGE_FAULT_SOURCE, "",
					  "its ACL is stored as text, by user name, which this cannot apply: make the tar "
					  "with `tar --xattrs --xattrs-include='*'` and without --acls");
		if (record(space + 1, key, equals + 1, value, to))
			return image_fail(err, IMAGE_FAULT_SOURCE, "", "malformed pax header: %.*s has a wrong value",
					  (int)(key < 100 ? key : 100), space + 1);
		text += size;
	}
	return 0;
}
