/* SPDX-License-Identifier: Apache-2.0 */
/* Where the files of a local image lie: a directory, or an archive (tar) that is read where it is. */
#ifndef IMPORTING_PLACE_H
#define IMPORTING_PLACE_H

#include "native/settings/settings.h"

struct place;

struct place *place_open_folder(const char *path, struct jail_error *err);
/* Of a compressed archive, a nameless file in ENROOT_TEMP_PATH takes the content. */
struct place *place_open_archive(const char *path, const struct settings *settings, struct jail_error *err);
/* The same of what a descriptor gives, which is closed; `name` stands for it in errors. A pipe is kept in such a file. */
struct place *place_open_stream(int fd, const char *name, const struct settings *settings, struct jail_error *err);
void place_close(struct place *place);

/* A descriptor of a file in it, at its first byte; `*length` bytes belong to the file. -1 with `err`: it is not there. */
int place_open_file(const struct place *place, const char *name, unsigned long long *length, struct jail_error *err);

/* A small file, terminated; the caller frees it. NULL with `err`. */
char *place_read(const struct place *place, const char *name, size_t *length, struct jail_error *err);

bool place_has(const struct place *place, const char *name);
const char *place_name(const struct place *place);

#endif
