/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes the parser of the options --container-*: the first byte of a line says which option, the rest
 * is its value. */
#define _GNU_SOURCE
#include <string.h>

#include "native/testing/fuzz.h"
#include "pyxis/options/request.h"

static void check(const struct pyxis_request *request)
{
	MUST(!request->image || pyxis_image_is_path(request->image) || strstr(request->image, "://"));
	MUST(!request->name || (request->name[0] && !strchr(request->name, '/')));
	MUST(request->sources.n <= request->mounts.n);
	MUST(request->unshare < 8);
	for (size_t i = 0; i < request->mounts.n; i++)
		MUST(!strchr(request->mounts.items[i], '\n') && !strchr(request->mounts.items[i], '\t'));
	for (size_t i = 0; i < request->environment.n; i++)
		MUST(request->environment.items[i][0] && !strchr(request->environment.items[i], '='));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = strndup((const char *)data, size);
	scoped_request request = { 0 };
	struct jail_error err;

	MUST(text);
	for (char *rest = text, *line; (line = strsep(&rest, "\n"));) {
		if (!*line)
			continue;
		enum pyxis_option option = (enum pyxis_option)((unsigned char)(*line - 'a') % PYXIS_N_OPTIONS);
		memset(&err, 0, sizeof(err));
		int result = (*line & 0x20) || !pyxis_option_variables[option]
			? pyxis_request_take(&request, option, line + 1, &err)
			: pyxis_request_take_variable(&request, option, line + 1, &err);
		if (result)
			must_explain(&err);
		else
			check(&request);
	}
	free(text);
	return 0;
}
