/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes the parser of a manifest's lines: any bytes are refused, or give paths inside the tree that are the same
 * when they are written and read again. */
#include <ctype.h>
#include <string.h>

#include "native/testing/fuzz.h"
#include "native/tree_check/line.h"

/* As a lookup sees it: whole names, none of which leads up or nowhere. */
static void check_path(const char *path)
{
	MUST(strlen(path) < PATH_MAX);
	for (const char *part = path; *part;) {
		size_t size = strcspn(part, "/");

		MUST(size && !(size == 1 && *part == '.') && !(size == 2 && !strncmp(part, "..", 2)));
		part += size;
		MUST(*part != '/' || part[1]);
		part += *part == '/';
	}
}

static void put_escaped(FILE *out, const char *text)
{
	for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
		if (*c <= ' ' || *c == 0x7f || *c == '%')
			fprintf(out, "%%%02X", *c);
		else
			fputc(*c, out);
	}
}

/* As cellblock/jail/tree/manifest.py writes it. */
static void check_again(const struct volume_line *line)
{
	struct volume_line again;
	char *text = NULL;
	size_t length = 0;
	FILE *out = open_memstream(&text, &length);

	fprintf(out, "%c %o %u %u %llu %lld ", line->kind, line->mode, line->uid, line->gid, (unsigned long long)line->size,
		(long long)line->time);
	if (line->kind == 'l' || line->kind == 'h')
		put_escaped(out, *line->target ? line->target : "");
	else
		fwrite(line->content, 1, line->content_length, out);
	fprintf(out, " %s ", line->has_attributes ? "user.x=eA==" : "-");
	put_escaped(out, *line->path ? line->path : ".");
	fclose(out);
	MUST(volume_line_parse(text, length, &again));
	MUST(again.kind == line->kind && again.mode == line->mode && again.uid == line->uid && again.gid == line->gid);
	MUST(again.size == line->size && again.time == line->time && again.has_attributes == line->has_attributes);
	MUST(again.content_length == line->content_length || line->kind == 'l' || line->kind == 'h');
	MUST(!strcmp(again.path, line->path) && !strcmp(again.target, line->target));
	free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct volume_line line;
	/* Of exactly this size, so that a byte too far is seen. */
	char *text = malloc(size);

	if (!text && size)
		return 0;
	if (size)
		memcpy(text, data, size);
	if (volume_line_parse(text, size, &line)) {
		MUST(strchr("dflpcbh", line.kind) && line.mode <= 07777);
		MUST(line.content >= text && line.content + line.content_length <= text + size);
		check_path(line.path);
		if (line.kind == 'h')
			check_path(line.target);
		check_again(&line);
	}
	free(text);
	return 0;
}
