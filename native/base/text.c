/* SPDX-License-Identifier: Apache-2.0 */
/* Formats and copies strings, keeps lists of them, and reads small files. Files of this folder, enroot/, other
 * libraries in native/ and pyxis/ call it. */
#define _GNU_SOURCE
#include "text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "scoped.h"

static void *grown(void *memory, size_t size)
{
	void *larger = realloc(memory, size);

	if (!larger) {
		fputs("[ERROR] Out of memory\n", stderr);
		exit(1);
	}
	return larger;
}

char *text_copy(const char *text, size_t length)
{
	char *copy = grown(NULL, length + 1);

	memcpy(copy, text, length);
	copy[length] = '\0';
	return copy;
}

char *text_format(const char *format, ...)
{
	va_list args;
	char *text;

	va_start(args, format);
	int length = vasprintf(&text, format, args);
	va_end(args);
	/* It fails for want of memory alone. */
	return length < 0 ? text_copy("", 0) : text;
}

bool text_starts(const char *text, const char *prefix)
{
	return !strncmp(text, prefix, strlen(prefix));
}

bool text_ends(const char *text, const char *suffix)
{
	size_t length = strlen(text), end = strlen(suffix);

	return length >= end && !strcmp(text + length - end, suffix);
}

void text_append(struct text_buffer *buffer, const char *text, size_t length)
{
	if (buffer->length + length + 1 > buffer->capacity) {
		buffer->capacity = (buffer->length + length + 1) * 2;
		buffer->text = grown(buffer->text, buffer->capacity);
	}
	if (length)
		memcpy(buffer->text + buffer->length, text, length);
	buffer->length += length;
	buffer->text[buffer->length] = '\0';
}

void text_append_string(struct text_buffer *buffer, const char *text)
{
	text_append(buffer, text, strlen(text));
}

void text_buffer_free(struct text_buffer *buffer)
{
	free(buffer->text);
	*buffer = (struct text_buffer){ 0 };
}

void text_list_take(struct text_list *list, char *text)
{
	if (list->n + 2 > list->capacity) {
		list->capacity = (list->n + 2) * 2;
		list->items = grown(list->items, list->capacity * sizeof(list->items[0]));
	}
	list->items[list->n++] = text;
	list->items[list->n] = NULL;
}

void text_list_add(struct text_list *list, const char *text)
{
	text_list_take(list, text_copy(text, strlen(text)));
}

static int compare(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

void text_list_sort(struct text_list *list)
{
	if (list->n)
		qsort(list->items, list->n, sizeof(list->items[0]), compare);
}

void text_list_free(struct text_list *list)
{
	for (size_t i = 0; i < list->n; i++)
		free(list->items[i]);
	free(list->items);
	*list = (struct text_list){ 0 };
}

char *text_read_open(int fd, const char *name, size_t limit, size_t *length, struct jail_error *err)
{
	scoped_buffer buffer = { 0 };
	char part[16384];
	ssize_t got;

	text_append(&buffer, "", 0);
	while ((got = read(fd, part, sizeof(part))) > 0) {
		if (buffer.length + (size_t)got > limit) {
			jail_fail(err, NULL, EFBIG, "it is larger than %zu bytes; is it the right file?", limit);
			jail_error_at(err, NULL, 0, name);
			return NULL;
		}
		text_append(&buffer, part, (size_t)got);
	}
	if (got < 0) {
		jail_fail(err, "read", errno, "cannot read it");
		jail_error_at(err, NULL, 0, name);
		return NULL;
	}
	char *text = buffer.text;
	if (length)
		*length = buffer.length;
	buffer.text = NULL;
	return text;
}

int text_open_plain(int dir, const char *path, int flags)
{
	scoped_fd found = openat(dir, path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	scoped_free char *self = text_format("/proc/self/fd/%d", found);
	struct stat st;

	if (found < 0 || fstat(found, &st))
		return -1;
	if (!S_ISREG(st.st_mode)) {
		errno = EPERM;
		return -1;
	}
	return open(self, flags | O_CLOEXEC);
}

char *text_read(int dir, const char *path, size_t limit, size_t *length, struct jail_error *err)
{
	scoped_fd fd = openat(dir, path, O_RDONLY | O_CLOEXEC);

	if (fd < 0) {
		jail_fail(err, "open", errno, "cannot open it");
		jail_error_at(err, NULL, 0, path);
		return NULL;
	}
	return text_read_open(fd, path, limit, length, err);
}

int text_write(int fd, const char *text, size_t length)
{
	while (length) {
		ssize_t done = write(fd, text, length);
		if (done < 0 && errno != EINTR)
			return -1;
		if (done > 0) {
			text += done;
			length -= (size_t)done;
		}
	}
	return 0;
}

int text_replace(const char *path, const char *text, size_t length, mode_t mode)
{
	scoped_free char *draft = text_format("%s.new", path);
	scoped_fd fd = open(draft, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, mode);

	return fd < 0 || text_write(fd, text, length) || rename(draft, path) ? -1 : 0;
}
