/* SPDX-License-Identifier: Apache-2.0 */
/* Turns a registry's error response (status >= 400) into an error of one sentence. authorization.c, endpoint.c and
 * foreign_layer.c call it. */
#define _GNU_SOURCE
#include "error_response.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define YEAR_S (366.0 * 24 * 3600)

/* Blanks become one, what moves cursors is left out. */
static void one_line(char *text)
{
	char *to = text;

	for (const char *from = text; *from; from++) {
		bool blank = *from == ' ' || *from == '\t' || *from == '\n' || *from == '\r';
		if (blank && (to == text || to[-1] == ' '))
			continue;
		if (blank)
			*to++ = ' ';
		else if ((unsigned char)*from >= ' ' && *from != 0x7f)
			*to++ = *from;
	}
	while (to > text && to[-1] == ' ')
		to--;
	*to = '\0';
}

static void add_error(const json_t *each, char said[400])
{
	const char *message = json_string_value(json_object_get(each, "message"));
	const char *code = json_string_value(json_object_get(each, "code"));
	const json_t *detail = json_object_get(each, "detail");
	size_t used = strlen(said);
	char *text = json_is_object(detail) || json_is_array(detail) ? json_dumps(detail, JSON_COMPACT) : NULL;
	const char *shown = text ? text : json_string_value(detail);

	if (!message || !*message)
		message = code ? code : "";
	snprintf(said + used, 400 - used, "%s%s%s%.200s%s", used && *message ? "; " : "", message,
		 shown && *shown ? " (" : "", shown ? shown : "", shown && *shown ? ")" : "");
	free(text);
}

char *error_response_line(const struct http_answer *answer, char said[400])
{
	json_t *body = answer->body.length ? json_loadb(answer->body.text, answer->body.length, 0, NULL) : NULL;
	const json_t *errors = json_object_get(body, "errors");

	said[0] = '\0';
	for (size_t i = 0; i < json_array_size(errors) && i < 3; i++)
		add_error(json_array_get(errors, i), said);
	if (!json_is_array(errors) && answer->body.length)
		snprintf(said, 200, "%s", answer->body.text);
	json_decref(body);
	one_line(said);
	return said;
}

/* Of the first error. */
static void find_code(const struct http_answer *answer, char code[24])
{
	json_t *body = answer->body.length ? json_loadb(answer->body.text, answer->body.length, 0, NULL) : NULL;
	const char *found = json_string_value(json_object_get(json_array_get(json_object_get(body, "errors"), 0), "code"));

	snprintf(code, 24, "%s", found ? found : "");
	json_decref(body);
}

int error_response_fail(const char *host, const char *doing, const struct http_answer *answer,
			struct registry_error *err)
{
	char said[400], until[64] = "";
	enum registry_fault fault = REGISTRY_FAULT_SERVER;
	const char *meaning = "";

	error_response_line(answer, said);
	/* Of what is further off nobody needs the date, which may be none. */
	if (answer->retry_after_s > 0 && answer->retry_after_s <= YEAR_S) {
		time_t then = time(NULL) + (time_t)answer->retry_after_s;
		struct tm parts;
		gmtime_r(&then, &parts);
		strftime(until, sizeof(until), answer->retry_after_s < 43200 ? "%H:%M:%S UTC" : "%Y-%m-%d %H:%M UTC", &parts);
	}
	if (answer->status == 429) {
		fault = REGISTRY_FAULT_LIMITED;
		meaning = ": too many requests for now";
	} else if (answer->status == 404) {
		fault = REGISTRY_FAULT_MISSING;
	} else if (answer->status == 401 || answer->status == 403) {
		fault = REGISTRY_FAULT_DENIED;
	} else if (answer->status == 400 && strstr(said, "HTTP request to an HTTPS server")) {
		fault = REGISTRY_FAULT_TLS;
		meaning = ": it speaks TLS, and was asked over plain http";
	}
	registry_fail(err, fault, "%s: could not %s: %d%s%s%s%s%s", host, doing, answer->status, *said ? ", " : "", said,
		      meaning, *until && answer->status == 429 ? ", until " : "", answer->status == 429 ? until : "");
	err->status = answer->status;
	find_code(answer, err->code);
	err->retry_after_s = answer->retry_after_s;
	switch (fault) {
	case REGISTRY_FAULT_LIMITED:
		return registry_hint(err, "run this again %s%s, or with credentials: those who log in have a higher limit; "
				     "a mirror in registries.conf has none", *until ? "after " : "later", until);
	case REGISTRY_FAULT_MISSING:
		return registry_hint(err, "check the name and the tag");
	case REGISTRY_FAULT_TLS:
		return registry_hint(err, "take ENROOT_ALLOW_HTTP away");
	default:
		return registry_hint(err, answer->status >= 500 ? "look at the log of %s; then run this again" :
				     "what it said names the reason; the log of %s has more", host);
	}
}
