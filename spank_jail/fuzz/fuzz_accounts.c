/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes the reader of the jail's accounts: any bytes give an error, or whole lines of ordinary users that are the
 * same when read again. The input is passwd, group and shadow with a byte 0xff between them. */
#define _GNU_SOURCE
#include <string.h>

#include "spank_jail/node/account_fields.h"
#include "spank_jail/node/account_records.h"
#include "native/testing/fuzz.h"

#define SEPARATOR 0xff

static const char own_passwd[] = "root:x:0:0:root:/root:/bin/bash\nslurm:x:64030:64030::/:/bin/false\n";
static const char own_group[] = "root:x:0:\nshadow:x:42:\nslurm:x:64030:\n";

struct run {
	struct accounts_text jail[ACCOUNTS_N_FILES], own[2], copy[ACCOUNTS_N_FILES];
	struct accounts_refused refused[ACCOUNTS_N_FILES];
};

static struct accounts_text text_of(const void *bytes, size_t size)
{
	struct accounts_text text = { malloc(size + 1), size };

	MUST(text.bytes);
	if (size)
		memcpy(text.bytes, bytes, size);
	return text;
}

static void free_run(struct run *run)
{
	for (int i = 0; i < ACCOUNTS_N_FILES; i++) {
		free(run->jail[i].bytes);
		free(run->copy[i].bytes);
	}
	free(run->own[0].bytes);
	free(run->own[1].bytes);
}

static int check(struct run *run)
{
	struct jail_error err;

	memset(&err, 0, sizeof(err));
	run->own[ACCOUNTS_PASSWD] = text_of(own_passwd, strlen(own_passwd));
	run->own[ACCOUNTS_GROUP] = text_of(own_group, strlen(own_group));
	int result = accounts_check(run->jail, run->own, run->copy, run->refused, &err);
	if (result)
		must_explain(&err);
	return result;
}

static void check_line(enum accounts_file which, char *line)
{
	static const int n_fields[] = { 7, 4, 9 };
	char *fields[9];
	unsigned long id, gid;

	MUST(!account_has_control(line, strlen(line)));
	MUST(account_split(line, fields, n_fields[which]));
	MUST(account_name_is_good(fields[0]));
	MUST(strcmp(fields[0], "root") && strcmp(fields[0], "slurm"));
	if (which == ACCOUNTS_SHADOW) {
		MUST(!strcmp(fields[1], "*") || !strcmp(fields[1], "!"));
		return;
	}
	MUST(!strcmp(fields[1], "x") && account_number(fields[2], UINT32_MAX, &id));
	MUST(account_id_is_ordinary(id) && id != 64030);
	if (which == ACCOUNTS_GROUP)
		return;
	MUST(account_number(fields[3], UINT32_MAX, &gid) && gid != 42 && gid != 0);
	MUST(!*fields[4] && account_path_is_good(fields[5]) && account_path_is_good(fields[6]));
}

static void check_copy(enum accounts_file which, const struct accounts_text *copy)
{
	char *text = strndup(copy->bytes, copy->size), *rest = text, *line;

	MUST(text && strlen(text) == copy->size);
	MUST(!copy->size || text[copy->size - 1] == '\n');
	while ((line = strsep(&rest, "\n")))
		if (*line)
			check_line(which, line);
	free(text);
}

/* A copy is read as it was written. Where a file came to nothing there is nothing to read. */
static void check_again(const struct run *first)
{
	struct run again;
	bool empty = false;

	memset(&again, 0, sizeof(again));
	for (int i = 0; i < ACCOUNTS_N_FILES; i++) {
		empty = empty || !first->copy[i].size;
		again.jail[i] = text_of(first->copy[i].bytes, first->copy[i].size);
	}
	MUST(empty == !!check(&again));
	for (int i = 0; !empty && i < ACCOUNTS_N_FILES; i++) {
		MUST(!again.refused[i].n && first->copy[i].size == again.copy[i].size);
		/* A locked one is "!", and stays so. */
		MUST(!memcmp(first->copy[i].bytes, again.copy[i].bytes, first->copy[i].size));
	}
	free_run(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct run run;

	memset(&run, 0, sizeof(run));
	for (int i = 0; i < ACCOUNTS_N_FILES; i++) {
		const uint8_t *end = i < ACCOUNTS_N_FILES - 1 && size ? memchr(data, SEPARATOR, size) : NULL;
		size_t length = end ? (size_t)(end - data) : size;
		run.jail[i] = text_of(data, length);
		data += length;
		size -= length;
		if (end) {
			data++;
			size--;
		}
	}
	if (!check(&run)) {
		for (int i = 0; i < ACCOUNTS_N_FILES; i++)
			check_copy((enum accounts_file)i, &run.copy[i]);
		check_again(&run);
	}
	free_run(&run);
	return 0;
}
