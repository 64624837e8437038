/* SPDX-License-Identifier: Apache-2.0 */
/* Removes a path that was written already, because a later entry of the same layer has the same path. directory.c
 * calls it. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "parts.h"
#include "native/layers/scoped.h"

/* One thread does this for all: it happens once in a thousand archives. */
static int replace(struct image_directory *directory, struct writer_state *writer, uint32_t node, uint32_t heir,
		   struct image_error *err)
{
	const struct image_node *one = image_tree_node(directory->tree, node);
	char name[IMAGE_NAME_LONGEST + 1], heirs[IMAGE_NAME_LONGEST + 1];
	struct image_record record;
	int folder = folder_open(directory, writer, folder_of(directory->tree, node), err), to;

	if (folder < 0)
		return -1;
	copy_name(directory->tree, node, name);
	if (!heir) {
		/* Not there: a directory in which nothing was, or what the target cannot hold. */
		if (unlinkat(folder, name, one->kind == 'd' ? AT_REMOVEDIR : 0) && errno != ENOENT)
			return fail_at(directory, node, "unlinkat", errno, err);
		return 0;
	}
	scoped_fd held = openat(folder, ".", O_PATH | O_DIRECTORY | O_CLOEXEC);

	to = held < 0 ? -1 : folder_open(directory, writer, folder_of(directory->tree, heir), err);
	if (to < 0)
		return held < 0 ? fail_at(directory, node, "openat", errno, err) : -1;
	copy_name(directory->tree, heir, heirs);
	if (renameat(held, name, to, heirs))
		return fail_at(directory, node, "renameat", errno, err);
	if (image_records_get(directory->records, node, &record, err))
		return -1;
	return image_records_put(directory->records, heir, &record, err);
}

int directory_replace(void *sink, uint32_t node, uint32_t heir, struct image_error *err)
{
	struct image_directory *directory = sink;
	const struct image_node *one = image_tree_node(directory->tree, node);
	struct writer_state writer = { .clock = 0 };
	int result;

	directory->replaced++;
	/* Links are made at the end. */
	if (one->kind != 'd' && one->link != node)
		return 0;
	if (directory_flush(directory, err) || thread_pool_drain(directory->work, err))
		return -1;
	if (directory->request.pick)
		return pick_replace(directory, node, heir, err);
	if (one->kind == 'd')
		folder_set_absent(directory, one->link);
	if (!image_directory_has(directory, node))
		return 0;
	for (int i = 0; i < KEPT_FOLDERS; i++)
		writer.kept[i].fd = -1;
	result = replace(directory, &writer, node, heir, err);
	writer_state_end(&writer);
	return result;
}
