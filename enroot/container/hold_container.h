/* SPDX-License-Identifier: Apache-2.0 */
/* A container without a command, for others to join: `start --hold READY,LIFE,NAME`, as pyxis does it.
 *
 * Its one process is LIBRARY_PATH/enroot-hold, a static program that any root can run: it writes a byte to READY and
 * stays until LIFE is closed at its other end. Its environment and working directory are those of the container.
 */
#ifndef ENROOT_HOLD_CONTAINER_H
#define ENROOT_HOLD_CONTAINER_H

#include "native/settings/settings.h"

struct hold {
	int ready, life;       /* descriptors */
	int program;           /* enroot-hold, open; 0: none is wanted */
	bool with_rc;          /* /etc/rc runs, and with it the image's entrypoint, before it */
	char names[3][32];     /* arguments of it */
	char *arguments[5];
	const char *name;      /* the last, by which others know it */
};

/* "READY,LIFE[,NAME]". Both are kept from what is run on the way. Returns 0 or -1. */
int hold_parse(const char *text, struct hold *hold);

/* Outside, before the namespaces: opens the program, if one is wanted. */
int hold_prepare(struct hold *hold, const struct settings *settings, struct jail_error *err);

/* Inside: the program and its arguments, for /etc/rc. */
char *const *hold_command(struct hold *hold);

/* Inside: enters the working directory of the image and becomes the program. Returns -1. */
int hold_run(struct hold *hold, char *const *environment, struct jail_error *err);

/* The directory that the text of an image's /etc/rc enters, as a new string, or NULL. Not run: read. */
char *hold_directory(const char *rc);

/* Makes the directory that /etc/rc of the tree `root` enters, while it can be written. */
void hold_make_directory(int root);

#endif
