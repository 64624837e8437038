/* SPDX-License-Identifier: Apache-2.0 */
/* Implements `enroot cache ls`: prints what the cache keeps. cache_command.c calls it. */
#define _GNU_SOURCE
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "native/base/scoped.h"
#include "native/base/report.h"
#include "cache_command.h"
#include "native/cache/entry.h"

static int newest_first(const void *a, const void *b)
{
	const struct trim_item *one = a, *other = b;

	if (one->used != other->used)
		return one->used > other->used ? -1 : 1;
	return strcmp(one->key, other->key);
}

static void print_member(const char *name, const char *value)
{
	printf("\"%s\": \"", name);
	for (; *value; value++) {
		unsigned char c = (unsigned char)*value;
		/* Bytes that are no ASCII are passed on: references are. */
		if (c < 0x20 || c == '"' || c == '\\')
			printf("\\u%04x", c);
		else
			putchar(c);
	}
	putchar('"');
}

static void time_text(time_t time, char text[32])
{
	struct tm tm;

	text[0] = '\0';
	if (gmtime_r(&time, &tm))
		strftime(text, 32, "%Y-%m-%dT%H:%M:%SZ", &tm);
}

static void user_text(uid_t uid, char text[64])
{
	const struct passwd *account = getpwuid(uid);

	if (account)
		snprintf(text, 64, "%s", account->pw_name);
	else
		snprintf(text, 64, "%u", (unsigned)uid);
}

static void print_json(const struct trim_item *item, const struct record *record, bool first)
{
	char time[32];

	printf("%s\n  {", first ? "" : ",");
	print_member("kind", *item->kind == 'i' ? "image" : "blob");
	printf(", ");
	print_member("key", item->key);
	printf(", \"bytes\": %lld, \"owner\": %u, \"shared\": %s, \"in_use\": %s, ", item->bytes, (unsigned)item->store->owner,
	       item->store->shared ? "true" : "false", item->in_use ? "true" : "false");
	time_text(item->used, time);
	print_member("used", time);
	printf(", ");
	print_member("path", item->store->path);
	if (record->reference) {
		printf(", ");
		print_member("reference", record->reference);
		printf(", ");
		print_member("digest", record->digest);
		printf(", ");
		print_member("platform", record->platform);
		time_text(record->made, time);
		printf(", ");
		print_member("made", time);
	}
	putchar('}');
}

static void print_row(const struct trim_item *item, const struct record *record)
{
	char time[32], user[64];

	time_text(item->used, time);
	user_text(item->store->owner, user);
	printf("%-6s %-12.12s %9.1f  %-10s %-20s  %s%s\n", *item->kind == 'i' ? "image" : "blob",
	       record->digest ? record->digest + 7 : item->key, (double)item->bytes / (1 << 20), user, time,
	       record->reference ? record->reference : item->store->shared ? "(shared)" : "", item->in_use ? " (in use)" : "");
}

int cache_ls(const struct settings *settings, const struct cache_choice *choice)
{
	scoped_view view = { .cache = cache_open(settings) };

	if (!cache_visible(&view, choice->all_users))
		return report_error("there is no administrator's directory (ENROOT_SHARED_CACHE_PATH) with other users' stores");
	if (view.list.n)
		qsort(view.list.items, view.list.n, sizeof(view.list.items[0]), newest_first);
	if (choice->json)
		printf("{\"bytes\": %lld, \"entries\": [", view.list.bytes);
	else
		printf("%-6s %-12s %9s  %-10s %-20s  %s\n", "KIND", "DIGEST", "MB", "OWNER", "USED", "REFERENCE");
	for (size_t i = 0; i < view.list.n; i++) {
		const struct trim_item *item = &view.list.items[i];
		scoped_record record = { 0 };
		struct jail_error err;
		if (*item->kind == 'i') {
			scoped_fd fd = entry_open(item->store, item->key, &record, &err);
			if (fd < 0)
				report_warn(&err);
		}
		if (record.reference) {
			jail_one_line(record.reference);
			jail_one_line(record.platform);
		}
		if (choice->json)
			print_json(item, &record, i == 0);
		else
			print_row(item, &record);
	}
	if (choice->json)
		puts(view.list.n ? "\n]}" : "]}");
	return 0;
}
