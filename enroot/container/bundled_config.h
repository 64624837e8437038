/* SPDX-License-Identifier: Apache-2.0 */
/* The configuration files in a bundle (an executable with an image): those of a user's environ.d, mounts.d and
 * hooks.d, one behind the other, each after a line "MODE LENGTH FOLDER/NAME". */
#ifndef ENROOT_CARRIED_H
#define ENROOT_CARRIED_H

#include "native/base/text.h"

/* Adds those of the configuration directory `config`. Returns 0 or -1. */
int bundled_config_pack(const char *config, struct text_buffer *out, struct jail_error *err);

/* Writes them into the directory `config`, which is there and empty. -1: `text` is damaged, or it cannot be written. */
int bundled_config_unpack(const struct text_buffer *text, const char *config, struct jail_error *err);

#endif
