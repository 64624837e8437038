/* SPDX-License-Identifier: Apache-2.0 */
/* An image to import: its configuration and layers, wherever they come from. */
#ifndef IMPORTING_SOURCE_H
#define IMPORTING_SOURCE_H

#include "native/layers/layers.h"
#include "image_files.h"

struct source_layer {
	char *file;        /* in the place */
	char *digest;      /* 64 digits, of the bytes as they are stored; NULL: only the diff_id is known */
	char *diff_id;     /* 64 digits, of the decompressed bytes, or NULL */
	unsigned long long size;
};

struct source {
	char *uri;
	char *digest;   /* "sha256:..." that stands for this image: of its manifest, or configuration */
	char *config;   /* JSON */
	size_t config_length;
	struct source_layer *layers; /* the top one first */
	unsigned n_layers;
	struct image_files *files;
	struct jail_error failure; /* of open_layer */
	bool failed;
};

/* Whether `uri` is one of a scheme that is read here: oci, oci-archive, docker-archive, dockerd, podman. */
bool source_is_local(const char *uri);

/* What its image is called without another name: no "/", no suffix. The caller frees it. */
char *source_name(const char *uri);

/* `architecture` as the option has it, or NULL: this machine's. Returns 0, or -1; close it in both cases. */
int source_open(struct source *source, const char *uri, const char *architecture, const struct settings *settings,
		struct jail_error *err);
void source_close(struct source *source);

/* For image_layers_request.open_layer: `context` is a struct source. */
int source_open_layer(void *context, unsigned layer);

/* oci_layout.c, docker_archive.c: fill the source from its place. `reference` chooses among several images; may be NULL. */
int source_read_oci(struct source *source, const char *reference, const char *architecture, struct jail_error *err);
int source_read_docker(struct source *source, const char *reference, struct jail_error *err);

/* Room for `count` layers. */
void source_add_layers(struct source *source, unsigned count);

#endif
