/* SPDX-License-Identifier: Apache-2.0 */
/* Adds lines to the text of passwd(5) and group(5) where a name is missing. */
#ifndef ENROOT_ACCOUNTS_H
#define ENROOT_ACCOUNTS_H

#include "native/base/text.h"

/* Adds the line of `name` in `text`, or `otherwise` where it has none. */
void accounts_add_known(struct text_list *first, const char *text, const char *name, const char *otherwise);

/* Adds the lines `first`, then those of `text` that have other names. */
void accounts_merge(struct text_buffer *out, const struct text_list *first, const char *text);

#endif
