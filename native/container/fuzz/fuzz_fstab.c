/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes the parser of fstab lines that container images and users bring: any text is read or refused,
 * and never a crash. */
#define _GNU_SOURCE
#include <string.h>

#include "native/testing/fuzz.h"
#include "native/container/fstab.h"

static const char *lookup(void *context, const char *name)
{
	(void)context;
	return !strcmp(name, "ENROOT_ROOTFS") ? "/root of it" : NULL;
}

static void check_entry(const struct fstab_entry *entry)
{
	MUST(entry->source[0] && entry->target[0]);
	MUST(fstab_target_is_inside(entry->target));
	MUST(entry->n_data <= FSTAB_MAX_DATA);
	MUST(entry->action != FSTAB_MOUNT || entry->type);
	MUST(entry->action != FSTAB_BIND || !entry->n_data);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct expand_request variables = { EXPAND_BRACES, lookup, NULL };
	char *text = strndup((const char *)data, size);
	struct fstab_entry entry;
	struct jail_error err;

	MUST(text);
	for (char *rest = text, *line; (line = strsep(&rest, "\n"));) {
		memset(&err, 0, sizeof(err));
		int found = fstab_parse(line, &variables, &entry, &err);
		if (found < 0)
			must_explain(&err);
		else if (found)
			check_entry(&entry);
		if (found > 0)
			fstab_entry_free(&entry);
	}
	free(text);
	return 0;
}
