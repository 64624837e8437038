/* SPDX-License-Identifier: Apache-2.0 */
/* Strings that grow, lists of strings, and small files that are read whole. The program ends when memory for a string
 * is refused, so that no caller has to check for it. */
#ifndef ENROOT_TEXT_H
#define ENROOT_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "error.h"

/* A new string; the caller frees it. */
char *text_format(const char *format, ...) __attribute__((format(printf, 1, 2)));
char *text_copy(const char *text, size_t length);

bool text_starts(const char *text, const char *prefix);
bool text_ends(const char *text, const char *suffix);

/* Grows; always terminated. Starts as { 0 }. */
struct text_buffer {
	char *text;
	size_t length, capacity;
};
void text_append(struct text_buffer *buffer, const char *text, size_t length);
void text_append_string(struct text_buffer *buffer, const char *text);
void text_buffer_free(struct text_buffer *buffer);

/* Strings that it owns, NULL behind the last: fit for exec. Starts as { 0 }. */
struct text_list {
	char **items;
	size_t n, capacity;
};
void text_list_add(struct text_list *list, const char *text);
/* The same for a string that the list owns from now on. */
void text_list_take(struct text_list *list, char *text);
void text_list_sort(struct text_list *list);
void text_list_free(struct text_list *list);

/* Opens a regular file that is there; what else has that name (a FIFO, a device, a link) is not even opened. Returns a descriptor, or
 * -1 and errno (EPERM: it is no file). */
int text_open_plain(int dir, const char *path, int flags);

/* The file `path` below the directory `dir` (AT_FDCWD: anywhere), terminated. NULL with `err`: it cannot be read,
 * or is larger than `limit` bytes. `length` may be NULL. */
char *text_read(int dir, const char *path, size_t limit, size_t *length, struct jail_error *err);
/* The same for what is open already; `name` stands for it in errors. */
char *text_read_open(int fd, const char *name, size_t limit, size_t *length, struct jail_error *err);

/* Writes all of it. Returns 0, or -1 and errno. */
int text_write(int fd, const char *text, size_t length);

/* Puts a file with this text in the place of `path` by a rename; it is made as `path`.new. `text` may be NULL when `length` is 0.
 * Not flushed. Returns 0, or -1 and errno: the file is as it was. */
int text_replace(const char *path, const char *text, size_t length, mode_t mode);

#define scoped_buffer __attribute__((cleanup(text_buffer_free))) struct text_buffer
#define scoped_list __attribute__((cleanup(text_list_free))) struct text_list

#endif
