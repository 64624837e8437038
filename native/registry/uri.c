/* SPDX-License-Identifier: Apache-2.0 */
/* Parses the URI of an image: docker://[USER@][REGISTRY(#|/)]IMAGE[:TAG][@DIGEST]. registries.c and enroot/importing
 * call it. */
#define _GNU_SOURCE
#include "uri.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "native/base/scoped.h"
#include "native/base/text.h"

#define SCHEME "docker://"
#define DIGITS "0123456789abcdef"
#define LOWER "abcdefghijklmnopqrstuvwxyz0123456789"

static int fail_uri(struct registry_error *err, const char *text, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

static int fail_uri(struct registry_error *err, const char *text, const char *format, ...)
{
	char why[400];
	va_list args;

	va_start(args, format);
	vsnprintf(why, sizeof(why), format, args);
	va_end(args);
	registry_fail(err, REGISTRY_FAULT_USAGE, "\"%.300s\" names no image: %s", text, why);
	jail_one_line(err->message);
	return registry_hint(err, "write " SCHEME "[USER@][REGISTRY#]IMAGE[:TAG][@sha256:DIGEST]");
}

/* Copies `length` bytes. -1: there is no room. */
static int put(char *to, size_t capacity, const char *from, size_t length)
{
	if (length >= capacity)
		return -1;
	memcpy(to, from, length);
	to[length] = '\0';
	return 0;
}

static bool is_digest(const char *text)
{
	return text_starts(text, "sha256:") && strlen(text) == 71 && strspn(text + 7, DIGITS) == 64;
}

static bool is_tag(const char *text)
{
	size_t length = strlen(text);

	return length && length <= 128 && text[0] != '.' && text[0] != '-' &&
	       strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-") == length;
}

bool registry_is_host(const char *text)
{
	const char *end;

	if (*text == '[') {
		end = strchr(text, ']');
		if (!end || end == text + 1 || strspn(text + 1, "0123456789abcdefABCDEF:.") != (size_t)(end - text - 1))
			return false;
		end++;
	} else {
		size_t name = 0;
		while (isalnum((unsigned char)text[name]) || (text[name] && strchr(".-_", text[name])))
			name++;
		if (!name)
			return false;
		end = text + name;
	}
	if (!*end)
		return true;
	size_t digits = strspn(end + 1, "0123456789");
	return *end == ':' && digits && digits <= 5 && !end[1 + digits];
}

/* Components of letters and digits with separators between them (distribution-spec 1.1, <name>). */
bool registry_is_path(const char *text)
{
	for (;;) {
		size_t letters = strspn(text, LOWER);
		if (!letters)
			return false;
		text += letters;
		if (!*text)
			return true;
		if (*text == '/' || *text == '.')
			text++;
		else if (*text == '_')
			text += text[1] == '_' ? 2 : 1;
		else if (*text == '-')
			text += strspn(text, "-");
		else
			return false;
	}
}

/* Takes "@sha256:..." off the end. */
static int take_digest(struct registry_uri *uri, char *rest, const char *text, struct registry_error *err)
{
	char *at = strrchr(rest, '@');

	/* Another algorithm is a digest too, and no name of a user before a name of a registry. */
	if (!at || !at[1] || !strchr(at, ':') || strpbrk(at, "/#."))
		return 0;
	if (!text_starts(at + 1, "sha") || !is_digest(at + 1)) {
		if (!text_starts(at + 1, "sha"))
			return 0;
		return fail_uri(err, text, "\"%.100s\" is no digest: sha256: and 64 digits of 0-9 and a-f", at + 1);
	}
	put(uri->digest, sizeof(uri->digest), at + 1, strlen(at + 1));
	*at = '\0';
	return 0;
}

static int take_registry(struct registry_uri *uri, char **rest, const char *text, struct registry_error *err)
{
	char *end = strchr(*rest, '#');

	if (!end) {
		end = strchr(*rest, '/');
		/* As docker decides it: what has neither dot nor port is part of the path. */
		if (end && !memchr(*rest, '.', (size_t)(end - *rest)) && !memchr(*rest, ':', (size_t)(end - *rest)))
			end = NULL;
	}
	if (end) {
		*end = '\0';
		if (put(uri->host, sizeof(uri->host), *rest, strlen(*rest)) || !registry_is_host(uri->host))
			return fail_uri(err, text, "\"%.100s\" is no name of a registry", *rest);
		*rest = end + 1;
	}
	static const char *const hub[] = { "", "docker.io", "index.docker.io", "registry-1.docker.io" };
	for (size_t i = 0; i < sizeof(hub) / sizeof(hub[0]); i++)
		if (!strcasecmp(uri->host, hub[i]))
			strcpy(uri->host, "docker.io");
	return 0;
}

int registry_uri_parse(struct registry_uri *uri, const char *text, struct registry_error *err)
{
	*uri = (struct registry_uri){ 0 };
	scoped_free char *copy = text_copy(text, strlen(text));
	char *rest = copy, *colon;

	if (text_starts(rest, SCHEME))
		rest += strlen(SCHEME);
	if (take_digest(uri, rest, text, err))
		return -1;
	char *at = strrchr(rest, '@');
	if (at) {
		*at = '\0';
		if (put(uri->user, sizeof(uri->user), rest, strlen(rest)) || !uri->user[0])
			return fail_uri(err, text, "before \"@\" stands no name of a user");
		rest = at + 1;
	}
	if (take_registry(uri, &rest, text, err))
		return -1;
	colon = strrchr(rest, ':');
	if (colon && !strchr(colon, '/')) {
		if (!is_tag(colon + 1))
			return fail_uri(err, text, "\"%.140s\" is no tag: at most 128 letters, digits, _ . and -, not "
					"beginning with . or -", colon + 1);
		put(uri->tag, sizeof(uri->tag), colon + 1, strlen(colon + 1));
		*colon = '\0';
	} else if (!uri->digest[0]) {
		strcpy(uri->tag, "latest");
	}
	if (!registry_is_path(rest))
		return fail_uri(err, text, "\"%.200s\" is no name of an image: lower-case letters and digits, and . _ - / "
				"between them", rest);
	bool library = !strcmp(uri->host, "docker.io") && !strchr(rest, '/');
	scoped_free char *path = text_format("%s%s", library ? "library/" : "", rest);
	if (put(uri->path, sizeof(uri->path), path, strlen(path)))
		return fail_uri(err, text, "the name is longer than 255 letters");
	return 0;
}

void registry_uri_file(const struct registry_uri *uri, char name[512])
{
	const char *path = text_starts(uri->path, "library/") ? uri->path + strlen("library/") : uri->path;

	/* A file's name does not take the colon of a digest everywhere; twelve digits are what people compare. */
	if (uri->tag[0])
		snprintf(name, 512, "%s+%s.sqsh", path, uri->tag);
	else
		snprintf(name, 512, "%s+sha256-%.12s.sqsh", path, uri->digest + 7);
	for (char *c = name; *c; c++)
		if (*c == '/')
			*c = '+';
}
