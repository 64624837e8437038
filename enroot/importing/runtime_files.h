/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the three files that enroot reads in a container's root, made from the image's configuration: rc,
 * environment and fstab. */
#ifndef IMPORTING_GENERATE_H
#define IMPORTING_GENERATE_H

#include "image_config.h"

/* Each appends to an empty buffer. `uri` is where the image comes from. */
void generate_rc(struct text_buffer *text, const struct image_config *config, const char *uri);
void generate_fstab(struct text_buffer *text, const struct image_config *config);
void generate_environment(struct text_buffer *text, const struct image_config *config);

#endif
