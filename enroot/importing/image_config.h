/* SPDX-License-Identifier: Apache-2.0 */
/* The part of an image's configuration (OCI image-spec 1.1, and Docker's) that says how to run it. */
#ifndef IMPORTING_IMAGE_CONFIG_H
#define IMPORTING_IMAGE_CONFIG_H

#include <stdint.h>

#include "native/base/text.h"

struct image_config {
	struct text_list environment; /* "KEY=VALUE" */
	struct text_list entrypoint, command;
	struct text_list labels;  /* "KEY=VALUE", sorted */
	struct text_list volumes; /* sorted */
	struct text_list diff_ids; /* of the layers, the bottom one first: "sha256:..." */
	char *folder;             /* WorkingDir, or NULL */
	char *architecture, *os;  /* or NULL */
	int64_t created;          /* seconds since 1970; 0: it does not say */
};

/* `name` stands for it in errors. Returns 0, or -1; free it in both cases. */
int image_config_parse(struct image_config *config, const char *json, size_t length, const char *name,
		       struct jail_error *err);
void image_config_free(struct image_config *config);

#define scoped_config __attribute__((cleanup(image_config_free))) struct image_config

#endif
