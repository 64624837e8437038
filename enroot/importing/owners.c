/* SPDX-License-Identifier: Apache-2.0 */
/* Gives all files of an image to the user who imports it, before they are written: no others can be made without
 * privileges. produce.c calls it. */
#define _GNU_SOURCE
#include "owners.h"

#include <unistd.h>

static struct image_entry ours(const struct image_entry *entry)
{
	struct image_entry copy = *entry;

	copy.uid = geteuid();
	copy.gid = getegid();
	return copy;
}

static int on_folder(void *sink, uint32_t node, const struct image_entry *entry, struct image_error *err)
{
	const struct image_sink *to = &((struct owners *)sink)->to;
	struct image_entry copy = ours(entry);

	return to->operations->folder(to->context, node, &copy, err);
}

static int on_special(void *sink, uint32_t node, const struct image_entry *entry, struct image_error *err)
{
	const struct image_sink *to = &((struct owners *)sink)->to;
	struct image_entry copy = ours(entry);

	return to->operations->special(to->context, node, &copy, err);
}

static int on_file(void *sink, uint32_t node, const struct image_entry *entry, struct image_error *err)
{
	const struct image_sink *to = &((struct owners *)sink)->to;
	struct image_entry copy = ours(entry);

	return to->operations->file(to->context, node, &copy, err);
}

static int on_slice(void *sink, const struct image_slice *slice, struct image_error *err)
{
	const struct image_sink *to = &((struct owners *)sink)->to;

	return to->operations->slice(to->context, slice, err);
}

static int on_file_end(void *sink, struct image_error *err)
{
	const struct image_sink *to = &((struct owners *)sink)->to;

	return to->operations->file_end(to->context, err);
}

static int on_link(void *sink, uint32_t node, uint32_t primary, struct image_error *err)
{
	const struct image_sink *to = &((struct owners *)sink)->to;

	return to->operations->link(to->context, node, primary, err);
}

static int on_replace(void *sink, uint32_t node, uint32_t heir, struct image_error *err)
{
	const struct image_sink *to = &((struct owners *)sink)->to;

	return to->operations->replace(to->context, node, heir, err);
}

static const struct image_sink_operations operations = {
	.folder = on_folder, .special = on_special, .file = on_file, .slice = on_slice, .file_end = on_file_end,
	.link = on_link, .replace = on_replace,
};

struct image_sink owners_sink(struct owners *owners, struct image_sink to)
{
	owners->to = to;
	return (struct image_sink){ &operations, owners };
}
