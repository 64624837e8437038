/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes the merge of a container's own accounts into an image's passwd: any text gives a file whose
 * other lines are unchanged. */
#define _GNU_SOURCE
#include <string.h>

#include "native/testing/fuzz.h"
#include "enroot/hooks/accounts.h"

/* How many lines begin with `name` and a colon. */
static size_t count(const char *text, const char *name)
{
	size_t n = 0, length = strlen(name);

	for (const char *line = text; *line; line += strcspn(line, "\n"), line += *line == '\n')
		n += !strncmp(line, name, length) && line[length] == ':';
	return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = strndup((const char *)data, size);
	struct text_list first = { 0 };
	struct text_buffer once = { 0 }, twice = { 0 };

	MUST(text);
	accounts_add_known(&first, text, "root", "root:x:0:0:root:/root:/bin/sh");
	accounts_add_known(&first, text, "nobody", "nobody:x:65534:65534::/:/bin/false");
	text_list_add(&first, "user:x:1000:1000::/home/user:/bin/sh");
	accounts_merge(&once, &first, text);
	/* Each of ours exactly once and first, and a second start changes nothing. */
	MUST(!strncmp(once.text, "root:", 5));
	MUST(count(once.text, "root") == 1 && count(once.text, "nobody") == 1 && count(once.text, "user") == 1);
	MUST(strstr(once.text, "\nuser:x:1000:"));
	accounts_merge(&twice, &first, once.text);
	MUST(!strcmp(once.text, twice.text));
	text_buffer_free(&once);
	text_buffer_free(&twice);
	text_list_free(&first);
	free(text);
	return 0;
}
