/* SPDX-License-Identifier: Apache-2.0 */
/* Lists the configuration files in environ.d, mounts.d and hooks.d: the administrator's first, then the user's, each
 * in order of names. */
#ifndef ENROOT_DROP_INS_H
#define ENROOT_DROP_INS_H

#include "native/settings/settings.h"

struct drop_ins {
	struct text_list paths; /* to be used */
	struct text_list names; /* of all that are there, usable or not */
};

/* Lists `folder` below SYSCONF_PATH and CONFIG_PATH: files ending with `suffix`; `executable`: only such that are. */
void drop_ins_find(struct drop_ins *files, const struct settings *settings, const char *folder, const char *suffix,
		   bool executable);

/* Whether one of them stands for the built-in `name`: it is called that, with digits and "-" before it or not. */
bool drop_ins_replace(const struct drop_ins *files, const char *name);

void drop_ins_free(struct drop_ins *files);

#endif
