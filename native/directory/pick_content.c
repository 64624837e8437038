/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the content of chosen files (pick.c) into one folder, each once, under the name of its
 * digest. file.c calls it. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "parts.h"
#include "native/layers/hash.h"
#include "native/layers/scoped.h"

static bool takes(const struct image_directory *directory, const struct item *item)
{
	char path[IMAGE_PATH_LONGEST + 1] = "";

	image_tree_path(directory->tree, item->node, path, sizeof(path));
	return image_pick_takes(directory->request.pick, item->record.digest, path);
}

int pick_small(struct image_directory *directory, const struct item *item, struct image_error *err)
{
	char name[65];
	scoped_fd fd = -1;

	if (!takes(directory, item))
		return 0;
	image_hash_digits(item->record.digest, name);
	fd = openat(directory->request.root, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0 && errno == EEXIST)
		return 0; /* another file of the same content; if that is not written, all fails */
	if (fd < 0)
		return fail_at(directory, item->node, "openat", errno, err);
	if (write_all(directory, item, fd, item->data, item->record.size, 0, err))
		return -1;
	return close_file(directory, item, &fd, err);
}

int pick_create(struct image_directory *directory, const struct item *item, char name[32], struct image_error *err)
{
	int fd;

	snprintf(name, 32, "large-%u", item->node);
	fd = openat(directory->request.root, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	return fd < 0 ? fail_at(directory, item->node, "openat", errno, err) : fd;
}

int pick_end(struct image_directory *directory, const struct item *item, const char *name, int *fd,
	     struct image_error *err)
{
	int root = directory->request.root;
	char digest[65];

	if (close_file(directory, item, fd, err))
		return -1;
	image_hash_digits(item->record.digest, digest);
	if (takes(directory, item) ? renameat(root, name, root, digest) : unlinkat(root, name, 0))
		return fail_at(directory, item->node, "renameat", errno, err);
	return 0;
}

/* The record is all that there is of it. */
int pick_replace(struct image_directory *directory, uint32_t node, uint32_t heir, struct image_error *err)
{
	struct image_record record;

	if (!heir)
		return 0;
	if (image_records_get(directory->records, node, &record, err))
		return -1;
	return image_records_put(directory->records, heir, &record, err);
}
