/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the manifest of a volume: one line per file. assembly.c calls it. */
#define _GNU_SOURCE
#include "manifest.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "native/layers/hash.h"
#include "native/layers/order.h"
#include "native/layers/scoped.h"
#include "native/layers/xattrs.h"

#define HEADER "cellblock-manifest 1\n"
#define BUFFER ((size_t)1 << 20)
/* Records that are read together, and how often such are kept: what comes together in the layers mostly does
 * in the manifest too, but for the order of the names in a directory. */
#define WINDOW 32u
#define WINDOWS 64u

struct window {
	uint32_t number; /* of the window, from 1; 0: nothing */
	struct image_record records[WINDOW];
};

struct writer {
	struct image_tree *tree;
	struct image_records *records;
	int fd;
	struct image_hash hash;
	unsigned char *extra;
	size_t extra_capacity, used;
	char *buffer;
	struct image_order order;
	struct window *windows;
	const struct image_interrupt *interrupt; /* or NULL */
};

static int flush(struct writer *writer, struct image_error *err)
{
	size_t done = 0;

	image_hash_add(&writer->hash, writer->buffer, writer->used);
	while (done < writer->used) {
		ssize_t part = write(writer->fd, writer->buffer + done, writer->used - done);

		if (part < 0 && errno == EINTR)
			continue;
		if (part < 0)
			return image_fail_call(err, "", "write", errno);
		done += (size_t)part;
	}
	writer->used = 0;
	return 0;
}

static int add(struct writer *writer, const void *data, size_t length, struct image_error *err)
{
	while (length) {
		size_t part = BUFFER - writer->used;

		part = part < length ? part : length;
		memcpy(writer->buffer + writer->used, data, part);
		writer->used += part;
		data = (const char *)data + part;
		length -= part;
		if (writer->used == BUFFER && flush(writer, err))
			return -1;
	}
	return 0;
}

static int add_text(struct writer *writer, const char *text, struct image_error *err)
{
	return add(writer, text, strlen(text), err);
}

static int add_escaped(struct writer *writer, const char *text, size_t length, const char *also,
		       struct image_error *err)
{
	static const char digits[] = "0123456789ABCDEF";
	size_t plain = 0;

	for (size_t i = 0; i < length; i++) {
		unsigned char c = (unsigned char)text[i];
		char code[3] = { '%', digits[c >> 4], digits[c & 15] };

		if (c > ' ' && c != 0x7f && c != '%' && (!*also || !strchr(also, c)))
			continue;
		if (add(writer, text + plain, i - plain, err) || add(writer, code, 3, err))
			return -1;
		plain = i + 1;
	}
	return add(writer, text + plain, length - plain, err);
}

static int add_base64(struct writer *writer, const unsigned char *data, size_t length, struct image_error *err)
{
	static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

	for (size_t i = 0; i < length; i += 3) {
		unsigned bits = (unsigned)data[i] << 16 | (i + 1 < length ? (unsigned)data[i + 1] << 8 : 0) |
				(i + 2 < length ? data[i + 2] : 0);
		char code[4] = { digits[bits >> 18], digits[bits >> 12 & 63],
				 i + 1 < length ? digits[bits >> 6 & 63] : '=',
				 i + 2 < length ? digits[bits & 63] : '=' };

		if (add(writer, code, 4, err))
			return -1;
	}
	return 0;
}

static int add_xattrs(struct writer *writer, const struct image_record *record, struct image_error *err)
{
	struct image_xattr xattr;
	bool first = true;

	for (size_t offset = 0; image_xattrs_next(writer->extra + record->target_length, record->xattrs_length, &offset,
						  &xattr); first = false)
		if ((!first && add(writer, ",", 1, err)) ||
		    add_escaped(writer, xattr.name, xattr.name_length, ",=", err) || add(writer, "=", 1, err) ||
		    add_base64(writer, xattr.value, xattr.value_length, err))
			return -1;
	return first ? add(writer, "-", 1, err) : 0;
}

static int add_content(struct writer *writer, char kind, uint32_t first, const struct image_record *record,
		       struct image_error *err)
{
	char text[IMAGE_PATH_LONGEST + 1];

	switch (kind) {
	case 'f':
		image_hash_digits(record->digest, text);
		return add_text(writer, text, err);
	case 'l':
		return add_escaped(writer, (char *)writer->extra, record->target_length, "", err);
	case 'h':
		image_tree_path(writer->tree, first, text, sizeof(text));
		return add_escaped(writer, text, strlen(text), "", err);
	case 'c': case 'b':
		snprintf(text, sizeof(text), "%" PRIu32 ":%" PRIu32, record->major, record->minor);
		return add_text(writer, text, err);
	default:
		return add(writer, "-", 1, err);
	}
}

static int get_record(struct writer *writer, uint32_t node, struct image_record *record, struct image_error *err)
{
	uint32_t number = node / WINDOW;
	struct window *window = &writer->windows[number % WINDOWS];

	if (window->number != number + 1) {
		window->number = 0;
		if (image_records_get_many(writer->records, number * WINDOW, WINDOW, window->records, err))
			return -1;
		window->number = number + 1;
	}
	*record = window->records[node % WINDOW];
	return 0;
}

static int add_line(struct writer *writer, uint32_t node, struct image_summary *summary, struct image_error *err)
{
	struct image_node *one = image_tree_node(writer->tree, node);
	uint32_t source = one->kind == 'd' ? node : one->link, first = 0;
	struct image_record record;
	char kind = one->kind, text[IMAGE_PATH_LONGEST + 1];
	size_t length;

	if (get_record(writer, source, &record, err))
		return -1;
	if (kind == 'd')
		image_record_complete(&record, node);
	if (image_records_extra(writer->records, &record, &writer->extra, &writer->extra_capacity, err))
		return -1;
	if (kind != 'd') {
		/* The first name in this order stands for the file, whichever had the content in the archive. */
		uint32_t *named = &image_tree_node(writer->tree, source)->hash_next;

		if (*named) {
			first = *named;
			kind = 'h';
		} else {
			*named = node;
		}
	}
	snprintf(text, sizeof(text), "%c %" PRIo32 " %" PRIu32 " %" PRIu32 " %" PRIu64 " %" PRId64 " ", kind, record.mode,
		 record.uid, record.gid, record.size, record.mtime_ns);
	if (add_text(writer, text, err) || add_content(writer, kind, first, &record, err) || add(writer, " ", 1, err) ||
	    add_xattrs(writer, &record, err) || add(writer, " ", 1, err))
		return -1;
	length = (size_t)image_tree_path(writer->tree, node, text, sizeof(text));
	if (length ? add_escaped(writer, text, length, "", err) : add(writer, ".", 1, err))
		return -1;
	summary->entries++;
	summary->bytes += kind == 'f' ? record.size : 0;
	return add(writer, "\n", 1, err);
}

static int walk(struct writer *writer, const struct image_directory *shard, struct image_summary *summary,
		struct image_error *err)
{
	/* As deep as a path of 4,095 bytes can be. */
	struct { uint32_t folder, next; } stack[IMAGE_PATH_LONGEST / 2 + 2];
	size_t depth = 0;

	if ((!shard || image_directory_has(shard, IMAGE_ROOT)) && add_line(writer, IMAGE_ROOT, summary, err))
		return -1;
	stack[depth].folder = image_tree_node(writer->tree, IMAGE_ROOT)->link;
	stack[depth++].next = writer->order.starts[stack[0].folder];
	while (depth) {
		uint32_t at = stack[depth - 1].next++, node;

		if (at == writer->order.starts[stack[depth - 1].folder + 1]) {
			depth--;
			continue;
		}
		if (writer->interrupt && !(at & 255) && writer->interrupt->tell(writer->interrupt->context, err))
			return -1;
		node = writer->order.children[at];
		if ((!shard || image_directory_has(shard, node)) && add_line(writer, node, summary, err))
			return -1;
		if (image_tree_node(writer->tree, node)->kind == 'd') {
			stack[depth].folder = image_tree_node(writer->tree, node)->link;
			stack[depth].next = writer->order.starts[stack[depth].folder];
			depth++;
		}
	}
	return 0;
}

static int write_lines(struct writer *writer, const struct image_directory *shard, struct image_summary *summary,
		       struct image_error *err)
{
	unsigned char digest[32];
	char end[128];

	if (image_records_load(writer->records, image_tree_count(writer->tree), err))
		return -1;
	if (image_hash_begin(&writer->hash))
		return image_fail_memory(err);
	if (image_order_new(&writer->order, writer->tree, err) || (!shard && add_text(writer, HEADER, err)) ||
	    walk(writer, shard, summary, err) || flush(writer, err)) {
		image_hash_drop(&writer->hash);
		return -1;
	}
	image_hash_end(&writer->hash, digest);
	image_hash_digits(digest, summary->digest);
	if (shard)
		return 0;
	snprintf(end, sizeof(end), "end %llu %s\n", summary->entries, summary->digest);
	return write(writer->fd, end, strlen(end)) == (ssize_t)strlen(end) ? 0 : image_fail_call(err, "", "write", errno);
}

int image_manifest_write(struct image_tree *tree, struct image_records *records, int fd,
			 const struct image_directory *shard, const struct image_interrupt *interrupt,
			 struct image_summary *summary, struct image_error *err)
{
	struct writer writer = { .tree = tree, .records = records, .fd = fd, .interrupt = interrupt, .buffer = malloc(BUFFER),
				 .windows = calloc(WINDOWS, sizeof(struct window)) };
	int result;

	*summary = (struct image_summary){ .entries = 0 };
	result = writer.buffer && writer.windows ? write_lines(&writer, shard, summary, err) : image_fail_memory(err);
	free(writer.buffer);
	free(writer.windows);
	free(writer.extra);
	image_order_free(&writer.order);
	return result;
}
