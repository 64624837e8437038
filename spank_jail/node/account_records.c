/* SPDX-License-Identifier: Apache-2.0 */
/* Checks the lines of the jail's passwd, group and shadow, and writes valid ones anew for the node. account_copy.c
 * calls it. */
#define _GNU_SOURCE
#include "account_records.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "native/base/scoped.h"
#include "account_fields.h"
#include "account_limits.h"

#define MAX_FIELDS 9

struct record {
	char *fields[MAX_FIELDS];
	size_t line;
	unsigned id;
	bool ordinary; /* the id is one of an ordinary user or group */
	bool out;
};

struct records {
	struct record *items;
	size_t n, size;
	struct record **by_name, **by_id; /* sorted; of one name or id the first line comes first */
};

static const struct {
	const char *name;
	int fields;
	size_t line_max;
} files[ACCOUNTS_N_FILES] = {
	[ACCOUNTS_PASSWD] = { "passwd", 7, ACCOUNTS_LINE_MAX },
	[ACCOUNTS_GROUP] = { "group", 4, ACCOUNTS_GROUP_LINE_MAX },
	[ACCOUNTS_SHADOW] = { "shadow", 9, ACCOUNTS_LINE_MAX },
};

const char *accounts_file_name(enum accounts_file which)
{
	return files[which].name;
}

static void free_records(struct records *records)
{
	free(records->items);
	free(records->by_name);
	free(records->by_id);
}
#define scoped_records __attribute__((cleanup(free_records))) struct records

static void refuse(struct accounts_refused *refused, size_t line, const char *reason)
{
	if (!refused->n++ || line < refused->line) {
		refused->line = line;
		refused->reason = reason;
	}
}

static void leave_out(struct record *record, struct accounts_refused *refused, const char *reason)
{
	record->out = true;
	refuse(refused, record->line, reason);
}

static bool add(struct records *records, const struct record *record)
{
	if (records->n == records->size) {
		size_t size = records->size ? records->size * 2 : 64;
		struct record *items = reallocarray(records->items, size, sizeof(*items));
		if (!items)
			return false;
		records->items = items;
		records->size = size;
	}
	records->items[records->n++] = *record;
	return true;
}

/* The record of a line, or why it is none. */
static const char *parse_line(enum accounts_file which, char *line, struct record *record)
{
	unsigned long id = 0;

	if (!account_split(line, record->fields, files[which].fields))
		return "the number of its fields is wrong";
	if (which != ACCOUNTS_SHADOW && !account_number(record->fields[2], UINT32_MAX, &id))
		return "its uid or gid is no number";
	record->id = (unsigned)id;
	record->ordinary = which == ACCOUNTS_SHADOW || account_id_is_ordinary(id);
	return account_name_is_good(record->fields[0]) || !record->ordinary ? NULL : "its name is none that nodes take";
}

static int no_memory(struct jail_error *err)
{
	return jail_fail(err, "malloc", ENOMEM, "not enough memory for the jail's accounts");
}

static int parse(enum accounts_file which, struct accounts_text *text, struct records *records,
		 struct accounts_refused *refused, struct jail_error *err)
{
	char *end = text->bytes + text->size;
	size_t number = 0;

	for (char *line = text->bytes, *next; line < end; line = next) {
		char *newline = memchr(line, '\n', (size_t)(end - line));
		size_t length = (size_t)((newline ? newline : end) - line);
		struct record record = { .line = ++number };
		const char *reason;

		next = newline ? newline + 1 : end;
		if (!length || *line == '#')
			continue;
		if (length > files[which].line_max)
			reason = "it is too long";
		else if (account_has_control(line, length))
			reason = "it has a control character";
		else {
			line[length] = '\0';
			reason = parse_line(which, line, &record);
		}
		if (reason)
			refuse(refused, number, reason);
		else if (!add(records, &record))
			return no_memory(err);
	}
	return 0;
}

static int compare_lines(const struct record *a, const struct record *b)
{
	return (a->line > b->line) - (a->line < b->line);
}

static int compare_names(const void *a, const void *b)
{
	const struct record *const *x = a, *const *y = b;
	int order = strcmp((*x)->fields[0], (*y)->fields[0]);

	return order ? order : compare_lines(*x, *y);
}

static int compare_ids(const void *a, const void *b)
{
	const struct record *const *x = a, *const *y = b;
	int order = ((*x)->id > (*y)->id) - ((*x)->id < (*y)->id);

	return order ? order : compare_lines(*x, *y);
}

static struct record **sorted(const struct records *records, int (*compare)(const void *, const void *))
{
	struct record **pointers = calloc(records->n + 1, sizeof(struct record *));

	if (!pointers)
		return NULL;
	for (size_t i = 0; i < records->n; i++)
		pointers[i] = &records->items[i];
	qsort(pointers, records->n, sizeof(*pointers), compare);
	return pointers;
}

static int sort(struct records *records, struct jail_error *err)
{
	records->by_name = sorted(records, compare_names);
	records->by_id = sorted(records, compare_ids);
	return records->by_name && records->by_id ? 0 : no_memory(err);
}

/* Of several with one name the first line counts, as for the C library; also when it is left out later. */
static void leave_out_repeated_names(struct records *records, struct accounts_refused *refused)
{
	for (size_t i = 1; i < records->n; i++)
		if (!strcmp(records->by_name[i - 1]->fields[0], records->by_name[i]->fields[0]))
			leave_out(records->by_name[i], refused, "its name is that of a line before it");
}

/* Of several ordinary ones with one id the first line counts. */
static void leave_out_repeated_ids(struct records *records, struct accounts_refused *refused)
{
	const struct record *kept = NULL;

	for (size_t i = 0; i < records->n; i++) {
		struct record *one = records->by_id[i];
		if (one->out)
			continue;
		if (kept && kept->id == one->id)
			leave_out(one, refused, "its id is that of a line before it");
		else
			kept = one;
	}
}

static struct record *first_named(const struct records *records, const char *name)
{
	size_t low = 0, high = records->n;

	while (low < high) {
		size_t middle = low + (high - low) / 2;
		if (strcmp(records->by_name[middle]->fields[0], name) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low < records->n && !strcmp(records->by_name[low]->fields[0], name) ? records->by_name[low] : NULL;
}

static bool has_id(const struct records *records, unsigned id)
{
	size_t low = 0, high = records->n;

	while (low < high) {
		size_t middle = low + (high - low) / 2;
		if (records->by_id[middle]->id < id)
			low = middle + 1;
		else
			high = middle;
	}
	return low < records->n && records->by_id[low]->id == id;
}

/* Names and ids of the system, and those that are the node's own. */
static void leave_out_systems(struct records *records, const struct records *own, struct accounts_refused *refused)
{
	for (size_t i = 0; i < records->n; i++) {
		struct record *one = &records->items[i];
		if (one->out)
			continue;
		const struct record *same = first_named(own, one->fields[0]);
		if (!one->ordinary || (same && same->id == one->id))
			one->out = true;
		else if (same)
			leave_out(one, refused, "its name is one of the node's own");
		else if (has_id(own, one->id))
			leave_out(one, refused, "its id is one of the node's own");
	}
}

static void check_users(struct records *users, struct accounts_refused *refused)
{
	for (size_t i = 0; i < users->n; i++) {
		struct record *one = &users->items[i];
		unsigned long gid;
		if (one->out)
			continue;
		if (!account_number(one->fields[3], UINT32_MAX, &gid) || !(account_id_is_ordinary(gid) || gid == ACCOUNTS_USERS_GID))
			leave_out(one, refused, "its primary group is one of the system");
		else if (!account_path_is_good(one->fields[5]))
			leave_out(one, refused, "its home is no absolute path, or has a '..' in it");
		else if (*one->fields[6] && !account_path_is_good(one->fields[6]))
			leave_out(one, refused, "its shell is no absolute path, or has a '..' in it");
	}
}

static void check_shadow(struct records *shadow, const struct records *users, struct accounts_refused *refused)
{
	for (size_t i = 0; i < shadow->n; i++) {
		struct record *one = &shadow->items[i];
		const struct record *user = first_named(users, one->fields[0]);
		one->out = one->out || !user || user->out;
		/* Without its line nobody comes in: not with an age that another program would read otherwise. */
		for (int field = 2; field < files[ACCOUNTS_SHADOW].fields && !one->out; field++)
			if (!account_age_is_good(one->fields[field]))
				leave_out(one, refused, "one of its ages is no number");
	}
}

static void write_user(FILE *stream, char *const *fields)
{
	unsigned long uid = 0, gid = 0;

	account_number(fields[2], UINT32_MAX, &uid);
	account_number(fields[3], UINT32_MAX, &gid);
	fprintf(stream, "%s:x:%lu:%lu::%s:%s\n", fields[0], uid, gid, fields[5], *fields[6] ? fields[6] : "/bin/sh");
}

static void write_group(FILE *stream, const struct record *group, const struct records *own_users)
{
	const char *between = "";
	char *members = group->fields[3], *member;

	fprintf(stream, "%s:x:%u:", group->fields[0], group->id);
	while ((member = strsep(&members, ","))) {
		if (!account_name_is_good(member) || first_named(own_users, member))
			continue;
		fprintf(stream, "%s%s", between, member);
		between = ",";
	}
	fputc('\n', stream);
}

static void write_shadow(FILE *stream, char *const *fields)
{
	fprintf(stream, "%s:%s", fields[0], fields[1][0] == '!' ? "!" : "*");
	for (int field = 2; field < files[ACCOUNTS_SHADOW].fields; field++)
		fprintf(stream, ":%s", fields[field]);
	fputc('\n', stream);
}

static int write_records(enum accounts_file which, const struct records *records, const struct records *own_users,
			 struct accounts_text *copy, struct jail_error *err)
{
	FILE *stream = open_memstream(&copy->bytes, &copy->size);

	if (!stream)
		return no_memory(err);
	for (size_t i = 0; i < records->n; i++) {
		const struct record *one = &records->items[i];
		if (one->out)
			continue;
		if (which == ACCOUNTS_PASSWD)
			write_user(stream, one->fields);
		else if (which == ACCOUNTS_GROUP)
			write_group(stream, one, own_users);
		else
			write_shadow(stream, one->fields);
	}
	bool failed = ferror(stream);
	return fclose(stream) || failed ? no_memory(err) : 0;
}

/* A line without an end, or none at all, is a file that somebody is writing at the moment. */
static int whole(enum accounts_file which, const struct accounts_text *text, struct jail_error *err)
{
	if (text->size && text->bytes[text->size - 1] == '\n')
		return 0;
	return jail_fail(err, NULL, 0, "%s is not whole: it %s; put it right in the jail", files[which].name,
			 text->size ? "does not end with a newline" : "is empty");
}

int accounts_check(struct accounts_text jail[ACCOUNTS_N_FILES], struct accounts_text own[2],
		   struct accounts_text copy[ACCOUNTS_N_FILES], struct accounts_refused refused[ACCOUNTS_N_FILES],
		   struct jail_error *err)
{
	scoped_records users = { 0 }, groups = { 0 }, shadow = { 0 }, own_users = { 0 }, own_groups = { 0 };
	struct records *all[ACCOUNTS_N_FILES] = { &users, &groups, &shadow };
	struct records *owns[] = { &own_users, &own_groups };
	struct accounts_refused untold = { 0 };

	memset(refused, 0, sizeof(*refused) * ACCOUNTS_N_FILES);
	memset(copy, 0, sizeof(*copy) * ACCOUNTS_N_FILES);
	for (enum accounts_file which = 0; which <= ACCOUNTS_GROUP; which++)
		if (parse(which, &own[which], owns[which], &untold, err) || sort(owns[which], err))
			return -1;
	for (enum accounts_file which = 0; which < ACCOUNTS_N_FILES; which++)
		if (whole(which, &jail[which], err) || parse(which, &jail[which], all[which], &refused[which], err) ||
		    sort(all[which], err))
			return -1;
	for (enum accounts_file which = 0; which < ACCOUNTS_N_FILES; which++)
		leave_out_repeated_names(all[which], &refused[which]);
	leave_out_systems(&users, &own_users, &refused[ACCOUNTS_PASSWD]);
	leave_out_systems(&groups, &own_groups, &refused[ACCOUNTS_GROUP]);
	check_users(&users, &refused[ACCOUNTS_PASSWD]);
	leave_out_repeated_ids(&users, &refused[ACCOUNTS_PASSWD]);
	leave_out_repeated_ids(&groups, &refused[ACCOUNTS_GROUP]);
	check_shadow(&shadow, &users, &refused[ACCOUNTS_SHADOW]);
	for (enum accounts_file which = 0; which < ACCOUNTS_N_FILES; which++)
		if (write_records(which, all[which], &own_users, &copy[which], err))
			return -1;
	return 0;
}

long accounts_gid_of(struct accounts_text *group, const char *name)
{
	scoped_records groups = { 0 };
	struct accounts_refused untold = { 0 };
	struct jail_error err;

	if (parse(ACCOUNTS_GROUP, group, &groups, &untold, &err) || sort(&groups, &err))
		return -1;
	const struct record *found = first_named(&groups, name);
	return found ? (long)found->id : -1;
}
