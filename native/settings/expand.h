/* SPDX-License-Identifier: Apache-2.0 */
/* Expands variables and five allowed commands in the value of a setting, as a shell would, without running one. */
#ifndef ENROOT_EXPAND_H
#define ENROOT_EXPAND_H

#include "native/base/text.h"

/* How much of a shell's grammar is understood. */
enum expand_mode {
	EXPAND_BRACES, /* ${NAME} and ${NAME:-word}: fstab and environment files */
	EXPAND_SHELL,  /* and $NAME, quotes, backslashes, $(id -u|-g|-un), $(nproc), $UID: enroot.conf */
};

struct expand_request {
	enum expand_mode mode;
	/* The value of a variable, or NULL. */
	const char *(*lookup)(void *context, const char *name);
	void *context;
};

/* The new text, which the caller frees; NULL: another command, an unfinished quote or brace. An unset variable is
 * empty. */
char *expand(const char *text, const struct expand_request *request, struct jail_error *err);

#endif
