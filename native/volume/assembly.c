/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a directory and its manifest, from an image's layers or from another directory.
 * Python calls it (native/cffi/image_core.py). */
#define _GNU_SOURCE
#include "assembly.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "walk.h"

struct image_assembly {
	struct image_request request;
	struct image_tree *tree;
	struct image_records *records;
	struct image_directory *directory;
	struct image_layers *layers;
};

static uint32_t last_node(void *directory)
{
	return image_directory_last_node(directory);
}

static unsigned replaced(void *directory)
{
	return image_directory_replaced(directory);
}

struct image_assembly *image_assembly_new(const struct image_request *request, struct image_error *err)
{
	struct image_assembly *assembly = calloc(1, sizeof(*assembly));
	struct image_sink sink;

	if (!assembly) {
		image_fail_memory(err);
		return NULL;
	}
	assembly->request = *request;
	assembly->tree = image_tree_new(request->records_folder, IMAGE_MEMORY_VOLUME, err);
	assembly->records = assembly->tree ? image_records_new(request->records_folder, err) : NULL;
	assembly->directory = assembly->records ? image_directory_new(assembly->tree, assembly->records,
								       &request->directory, err) : NULL;
	if (assembly->directory) {
		sink = image_directory_sink(assembly->directory);
		assembly->layers = image_layers_new(assembly->tree, &sink, &request->layers, err);
		if (assembly->layers) {
			assembly->layers->target = (struct image_layers_target){ last_node, replaced, assembly->directory };
			image_directory_ask(assembly->directory, &assembly->layers->interrupt);
		}
	}
	if (assembly->layers)
		return assembly;
	image_assembly_free(assembly);
	return NULL;
}

void image_assembly_free(struct image_assembly *assembly)
{
	if (!assembly)
		return;
	image_directory_free(assembly->directory);
	image_layers_free(assembly->layers);
	image_records_free(assembly->records);
	image_tree_free(assembly->tree);
	free(assembly);
}

static int read_directory(struct image_assembly *assembly, struct image_error *err)
{
	struct image_walk *walk = image_walk_new(assembly->request.source, &assembly->layers->pool,
						   &assembly->layers->read, &assembly->layers->interrupt, err);
	struct image_content content = { image_walk_data, walk };
	const struct image_entry *entry;
	int got = walk ? 1 : -1;

	while (got > 0 && (got = image_walk_next(walk, &entry, err)) > 0)
		if (image_merge_entry_as_is(assembly->layers->merge, entry, &content, err) ||
		    image_layers_tell(assembly->layers, err))
			got = -1;
	image_walk_free(walk);
	return got;
}

int image_assembly_run(struct image_assembly *assembly, int *layer, struct image_error *err)
{
	*layer = -1;
	if (assembly->request.source && read_directory(assembly, err))
		return -1;
	if (image_layers_run(assembly->layers, layer, err) || image_directory_finish(assembly->directory, err) ||
	    image_layers_end_listings(assembly->layers, assembly->records, err))
		return -1;
	assembly->layers->reported_ns = 0;
	return image_layers_tell(assembly->layers, err);
}

int image_assembly_seal(struct image_assembly *assembly, struct image_error *err)
{
	return image_directory_seal(assembly->directory, err);
}

int image_assembly_manifest(struct image_assembly *assembly, int fd, bool part, struct image_summary *summary,
			    struct image_error *err)
{
	return image_manifest_write(assembly->tree, assembly->records, fd, part ? assembly->directory : NULL,
				    &assembly->layers->interrupt, summary, err);
}

struct image_lost_count image_assembly_lost(const struct image_assembly *assembly, unsigned loss)
{
	const struct image_lost *lost = &image_directory_losses(assembly->directory)[loss];
	struct image_lost_count result = { .count = atomic_load(&lost->count) };

	snprintf(result.first, sizeof(result.first), "%s", lost->first);
	return result;
}

struct image_progress image_assembly_progress(struct image_assembly *assembly)
{
	const struct image_directory_count *counts = image_directory_counts(assembly->directory);

	return (struct image_progress){ atomic_load(&assembly->layers->read), atomic_load(&counts->bytes),
					atomic_load(&counts->files), atomic_load(&counts->kept) };
}
