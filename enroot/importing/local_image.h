/* SPDX-License-Identifier: Apache-2.0 */
/* Opens an image on this machine, whether an OCI layout, an archive or one of a daemon's. */
#ifndef IMPORTING_LOCAL_IMAGE_H
#define IMPORTING_LOCAL_IMAGE_H

#include "native/layers/layers.h"
#include "image_files.h"

struct local_layer {
	char *file;        /* in the place */
	char *digest;      /* 64 digits, of the bytes as they are stored; NULL: only the diff_id is known */
	char *diff_id;     /* 64 digits, of the decompressed bytes, or NULL */
	unsigned long long size;
};

struct local_image {
	char *uri;
	char *digest;   /* "sha256:..." that stands for this image: of its manifest, or configuration */
	char *config;   /* JSON */
	size_t config_length;
	struct local_layer *layers; /* the top one first */
	unsigned n_layers;
	struct image_files *files;
	struct jail_error failure; /* of open_layer */
	bool failed;
};

/* Whether `uri` is one of a scheme that is read here: oci, oci-archive, docker-archive, dockerd, podman. */
bool local_image_is_local(const char *uri);

/* What its image is called without another name: no "/", no suffix. The caller frees it. */
char *local_image_name(const char *uri);

/* `architecture` as the option has it, or NULL: this machine's. Returns 0, or -1; close it in both cases. */
int local_image_open(struct local_image *source, const char *uri, const char *architecture, const struct settings *settings,
		struct jail_error *err);
void local_image_close(struct local_image *source);

/* For image_layers_request.open_layer: `context` is a struct local_image. */
int local_image_open_layer(void *context, unsigned layer);

/* oci_layout.c, docker_archive.c: fill the source from its place. `reference` chooses among several images; may be NULL. */
int local_image_read_oci(struct local_image *source, const char *reference, const char *architecture, struct jail_error *err);
int local_image_read_docker(struct local_image *source, const char *reference, struct jail_error *err);

/* Room for `count` layers. */
void local_image_add_layers(struct local_image *source, unsigned count);

#endif
