/* SPDX-License-Identifier: Apache-2.0 */
/* Reads and writes the record of a cached image: a text file beside it that names what it was made of and its digest.
 * blob.c, document.c and entry.c call it. */
#define _GNU_SOURCE
#include "record.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "native/base/scoped.h"
#include "native/layers/hash.h"

/* Another number when the meaning of what is kept changes: what is there then is not found any more, and trimmed. */
#define FORMAT "enroot-image-cache 1"

bool record_is_digest(const char *text)
{
	return text_starts(text, "sha256:") && strspn(text + 7, "0123456789abcdef") == 64 && !text[71];
}

int record_key(const struct cache_request *request, char key[65], struct jail_error *err)
{
	scoped_buffer text = { 0 };
	struct image_hash hash;
	unsigned char digest[32];

	if (!record_is_digest(request->digest))
		return jail_fail(err, NULL, EINVAL, "\"%.80s\" is no digest: sha256: and 64 digits", request->digest);
	text_append_string(&text, FORMAT "\n");
	text_append_string(&text, request->digest);
	text_append_string(&text, "\n");
	text_append_string(&text, request->platform);
	for (const char *const *option = request->options; option && *option; option++) {
		text_append_string(&text, "\n");
		text_append_string(&text, *option);
		if (strchr(*option, '\n'))
			return jail_fail(err, NULL, EINVAL, "an option holds a newline");
	}
	if (strchr(request->platform, '\n') || strchr(request->reference, '\n'))
		return jail_fail(err, NULL, EINVAL, "the reference or the platform holds a newline");
	if (image_hash_begin(&hash))
		return jail_fail(err, NULL, ENOMEM, "no memory for a hash");
	image_hash_add(&hash, text.text, text.length);
	image_hash_end(&hash, digest);
	image_hash_digits(digest, key);
	return 0;
}

static void add(struct text_buffer *text, const char *key, const char *value)
{
	text_append_string(text, key);
	text_append_string(text, " ");
	text_append_string(text, value);
	text_append_string(text, "\n");
}

char *record_format(const struct record *record)
{
	struct text_buffer text = { 0 };
	char number[64];

	text_append_string(&text, FORMAT "\n");
	add(&text, "key", record->key);
	add(&text, "reference", record->reference);
	add(&text, "digest", record->digest);
	add(&text, "platform", record->platform);
	for (size_t i = 0; i < record->options.n; i++)
		add(&text, "option", record->options.items[i]);
	snprintf(number, sizeof(number), "%llu", record->size);
	add(&text, "size", number);
	snprintf(number, sizeof(number), "%lld.%09ld", (long long)record->changed.tv_sec, record->changed.tv_nsec);
	add(&text, "changed", number);
	snprintf(number, sizeof(number), "%lld", (long long)record->made);
	add(&text, "made", number);
	add(&text, "content", record->content);
	add(&text, "end", "1");
	return text.text;
}

static void set(char **field, const char *value)
{
	free(*field);
	*field = text_copy(value, strlen(value));
}

/* False: a value that cannot be. */
static bool set_field(struct record *record, const char *key, const char *value)
{
	long long seconds;
	int used = 0;

	if (!strcmp(key, "reference"))
		set(&record->reference, value);
	else if (!strcmp(key, "digest")) {
		if (!record_is_digest(value))
			return false;
		set(&record->digest, value);
	} else if (!strcmp(key, "platform"))
		set(&record->platform, value);
	else if (!strcmp(key, "option"))
		text_list_add(&record->options, value);
	else if (!strcmp(key, "size"))
		return sscanf(value, "%20llu%n", &record->size, &used) == 1 && !value[used];
	else if (!strcmp(key, "changed")) {
		if (sscanf(value, "%20lld.%9ld%n", &seconds, &record->changed.tv_nsec, &used) != 2 || value[used])
			return false;
		record->changed.tv_sec = (time_t)seconds;
	} else if (!strcmp(key, "made")) {
		if (sscanf(value, "%20lld%n", &seconds, &used) != 1 || value[used])
			return false;
		record->made = (time_t)seconds;
	} else if (!strcmp(key, "key") || !strcmp(key, "content")) {
		if (strlen(value) != 64 || strspn(value, "0123456789abcdef") != 64)
			return false;
		memcpy(*key == 'k' ? record->key : record->content, value, 65);
	}
	return true;
}

int record_parse(struct record *record, const char *text, struct jail_error *err)
{
	scoped_free char *copy = text_copy(text, strlen(text));
	char *rest = copy, *line = strsep(&rest, "\n");
	bool whole = false;

	*record = (struct record){ 0 };
	if (strcmp(line, FORMAT))
		return jail_fail(err, NULL, 0, "it is no record of this cache, or one of another version");
	for (int number = 2; (line = strsep(&rest, "\n")); number++) {
		char *value = strchr(line, ' ');
		if (!value)
			continue;
		*value++ = '\0';
		whole = whole || (!strcmp(line, "end") && !strcmp(value, "1"));
		if (!set_field(record, line, value)) {
			jail_fail(err, NULL, 0, "\"%.80s\" cannot be the %.20s of an image", value, line);
			return jail_error_at(err, "record", number, NULL);
		}
	}
	if (whole && record->reference && record->digest && record->platform && record->key[0] && record->content[0])
		return 0;
	return jail_fail(err, NULL, 0, "the record is not whole");
}

void record_free(struct record *record)
{
	free(record->reference);
	free(record->digest);
	free(record->platform);
	text_list_free(&record->options);
	*record = (struct record){ 0 };
}
