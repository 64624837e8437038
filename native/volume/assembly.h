/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a directory and its manifest, from an image's layers or from another directory. Python calls it for that. */
#ifndef IMAGE_ASSEMBLY_H
#define IMAGE_ASSEMBLY_H

#include "native/directory/directory.h"
#include "native/layers/layers.h"
#include "manifest.h"

struct image_request {
	struct image_directory_request directory;
	const char *records_folder; /* for files without a name, 88 bytes for each file of the tree */
	const char *source;         /* a directory to copy; or NULL: then the layers */
	struct image_layers_request layers;
};

struct image_assembly;

/* What `request` points to stays the caller's and must outlive the assembly. */
struct image_assembly *image_assembly_new(const struct image_request *request, struct image_error *err);
void image_assembly_free(struct image_assembly *assembly);

/* Reads all, writes all files (of this shard). On failure `*layer` is the one that was being read, or -1. */
int image_assembly_run(struct image_assembly *assembly, int *layer, struct image_error *err);

/* The directories' own owners, modes and times; with shards by the one that finishes last. */
int image_assembly_seal(struct image_assembly *assembly, struct image_error *err);

/* The last that can be done. `part`: the lines of this shard alone. */
int image_assembly_manifest(struct image_assembly *assembly, int fd, bool part, struct image_summary *summary,
			    struct image_error *err);

/* What was lost, of enum image_loss, with the path of one. */
struct image_lost_count {
	unsigned long long count;
	char first[256];
};
struct image_lost_count image_assembly_lost(const struct image_assembly *assembly, unsigned loss);

struct image_progress {
	unsigned long long read, written, files, kept;
};
struct image_progress image_assembly_progress(struct image_assembly *assembly);

#endif
