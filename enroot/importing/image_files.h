/* SPDX-License-Identifier: Apache-2.0 */
/* Opens files of an image on this machine, in a directory or inside a tar archive that is not unpacked. */
#ifndef IMPORTING_IMAGE_FILES_H
#define IMPORTING_IMAGE_FILES_H

#include "native/settings/settings.h"

struct image_files;

struct image_files *image_files_open_folder(const char *path, struct jail_error *err);
/* Of a compressed archive, a nameless file in ENROOT_TEMP_PATH takes the content. */
struct image_files *image_files_open_archive(const char *path, const struct settings *settings, struct jail_error *err);
/* The same of what a descriptor gives, which is closed; `name` stands for it in errors. A pipe is kept in such a file. */
struct image_files *image_files_open_stream(int fd, const char *name, const struct settings *settings, struct jail_error *err);
void image_files_close(struct image_files *files);

/* A descriptor of a file in it, at its first byte; `*length` bytes belong to the file. -1 with `err`: it is not there. */
int image_files_open_file(const struct image_files *files, const char *name, unsigned long long *length, struct jail_error *err);

/* A small file, terminated; the caller frees it. NULL with `err`. */
char *image_files_read(const struct image_files *files, const char *name, size_t *length, struct jail_error *err);

bool image_files_has(const struct image_files *files, const char *name);
const char *image_files_name(const struct image_files *files);

#endif
