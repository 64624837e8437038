/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes the parser of the plugin's arguments in plugstack.conf, one per line of the input. */
#define _GNU_SOURCE
#include <string.h>

#include "native/testing/fuzz.h"
#include "pyxis/options/arguments.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = strndup((const char *)data, size);
	const char *words[32];
	struct pyxis_arguments arguments;
	struct jail_error err = { 0 };
	int n = 0;

	MUST(text);
	for (char *rest = text, *word; n < 32 && (word = strsep(&rest, "\n"));)
		words[n++] = word;
	if (pyxis_arguments_parse(n, words, &arguments, &err))
		must_explain(&err);
	else
		MUST(arguments.runtime_path[0] == '/' && (!arguments.importer || arguments.importer[0] == '/'));
	free(text);
	return 0;
}
