/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes image configurations: any text is refused with a reason, or gives the three files rc, environment and fstab,
 * and no value can add a line to one of them. */
#define _GNU_SOURCE
#include <string.h>

#include "native/testing/fuzz.h"
#include "enroot/importing/runtime_files.h"

/* Comments, then lines of which each word outside of quotes is one that belongs there. */
static void check_rc(const char *text, const struct image_config *config)
{
	size_t comments = 0;

	MUST(text_starts(text, "# enroot-provenance: "));
	for (const char *line = text; *line == '#'; line = strchr(line, '\n') + 1)
		comments++;
	MUST(comments == 1 + config->labels.n);
	/* Taken out of single quotes, what is left has no metacharacter but those of the frame. */
	bool quoted = false;
	const char *at = text;
	for (size_t i = 0; i < comments; i++)
		at = strchr(at, '\n') + 1;
	for (; *at; at++) {
		if (!quoted && at[0] == '\\' && at[1] == '\'') {
			at++;
			continue;
		}
		if (*at == '\'')
			quoted = !quoted;
		else if (!quoted)
			MUST(!strchr("`*?(){}!~", *at));
	}
	MUST(!quoted);
}

static size_t lines(const char *text)
{
	size_t n = 0;

	for (; text && (text = strchr(text, '\n')); text++)
		n++;
	return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct image_config config;
	struct jail_error err = { 0 };
	struct text_buffer rc = { NULL, 0, 0 }, fstab = { NULL, 0, 0 }, environment = { NULL, 0, 0 };

	if (image_config_parse(&config, (const char *)data, size, "fuzz", &err)) {
		must_explain(&err);
	} else {
		generate_rc(&rc, &config, "docker://fuzz");
		generate_fstab(&fstab, &config);
		generate_environment(&environment, &config);
		check_rc(rc.text, &config);
		/* A volume that is the root has no line. */
		MUST(lines(fstab.text) <= config.volumes.n);
		MUST(lines(environment.text) <= config.environment.n);
	}
	text_buffer_free(&rc);
	text_buffer_free(&fstab);
	text_buffer_free(&environment);
	image_config_free(&config);
	return 0;
}
