/* SPDX-License-Identifier: Apache-2.0 */
/* Notes for error messages where a credential was looked for, and decides whether one that was found is for this
 * registry and user. credential_search.c looks for it. credential_search.c and auth_file.c call it. */
#define _GNU_SOURCE
#include "credential.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define CONNECT_TIMEOUT_S 30

void credential_place(struct credential *credential, const char *format, ...)
{
	char text[1024];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	text_append_string(&credential->places, "\n    - ");
	text_append_string(&credential->places, jail_one_line(text));
}

void credential_remark(struct credential *credential, const char *format, ...)
{
	char text[512];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	text_append_string(&credential->places, " (");
	text_append_string(&credential->places, jail_one_line(text));
	text_append_string(&credential->places, ")");
}

bool credential_is_for(struct credential *credential, const struct credential_request *request, const char *user)
{
	if (!*request->user || !strcmp(user, request->user))
		return true;
	credential_remark(credential, "of another user than %s", request->user);
	return false;
}

const char *const *credential_hosts(const char *host, const char *own[5])
{
	static const char *const hub[] = { "docker.io", "registry-1.docker.io", "index.docker.io", NULL };

	if (!strcmp(host, "docker.io"))
		return hub;
	own[0] = host;
	own[1] = NULL;
	return own;
}

unsigned credential_patience(const struct credential_request *request)
{
	return (unsigned)settings_number(request->settings, "ENROOT_CONNECT_TIMEOUT", CONNECT_TIMEOUT_S);
}
