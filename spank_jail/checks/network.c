/* SPDX-License-Identifier: Apache-2.0 */
/* Checks network devices: their link, and whether their error counters grow. node_checks.c calls it. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "native/base/scoped.h"
#include "native/base/text.h"

#define IS_UP 1 /* IFF_UP; netdevice(7) */

static char *attribute(const char *folder, const char *device, const char *name)
{
	scoped_free char *path = text_format("%s/%s/%s", folder, device, name);
	char *text = check_read(path);

	if (text)
		text[strcspn(text, "\n")] = 0;
	return text;
}

static uint64_t counter(const char *folder, const char *device, const char *name)
{
	scoped_free char *text = attribute(folder, device, name);

	return text ? strtoull(text, NULL, 10) : 0;
}

struct counts {
	uint64_t errors, packets;
};

static bool recall(const char *before, const char *device, struct counts *counts)
{
	scoped_free char *start = text_format("\n%s ", device);
	const char *line = before ? strstr(before, start) : NULL;
	unsigned long long errors, packets;

	if (!line || sscanf(line + strlen(start), "%llu %llu", &errors, &packets) != 2)
		return false;
	*counts = (struct counts){ errors, packets };
	return true;
}

static int look_at_device(const char *folder, const char *device, const char *before, struct text_buffer *now)
{
	scoped_free char *flags = attribute(folder, device, "flags"), *state = attribute(folder, device, "operstate");
	struct counts old, new = {
		counter(folder, device, "statistics/rx_errors") + counter(folder, device, "statistics/tx_errors"),
		counter(folder, device, "statistics/rx_packets") + counter(folder, device, "statistics/tx_packets"),
	};

	if (!flags || !state || !(strtoul(flags, NULL, 16) & IS_UP))
		return CHECK_PASSED;
	scoped_free char *line = text_format("%s %llu %llu\n", device, (unsigned long long)new.errors, (unsigned long long)new.packets);
	text_append_string(now, line);
	if (!strcmp(state, "down") || !strcmp(state, "lowerlayerdown"))
		return check_failed("network device %s is %s", device, state);
	if (!recall(before, device, &old) || new.errors <= old.errors)
		return CHECK_PASSED;
	uint64_t errors = new.errors - old.errors, packets = new.packets - old.packets;
	if (errors > check_number("errors", 100) && errors * 100 > packets)
		return check_failed("network device %s had %llu errors in %llu packets", device, (unsigned long long)errors,
				    (unsigned long long)packets);
	return CHECK_PASSED;
}

/* A device that was up before and is no longer there. */
static int look_for_gone(const char *folder, const char *before)
{
	scoped_free char *copy = text_copy(before, strlen(before));
	char *rest = copy, *line;

	while ((line = strsep(&rest, "\n"))) {
		line[strcspn(line, " ")] = 0;
		scoped_free char *flags = *line ? attribute(folder, line, "flags") : NULL;
		if (*line && !flags)
			return check_failed("network device %s is gone", line);
	}
	return CHECK_PASSED;
}

int check_network(void)
{
	const char *folder = check_word("folder", "/sys/class/net");
	scoped_free char *before = check_recall("devices");
	DIR *entries = opendir(folder);
	struct dirent *entry;
	scoped_buffer now = { 0 };
	int status, worst = CHECK_PASSED;

	if (!entries)
		return check_could_not_run("%s: %s", folder, strerrordesc_np(errno));
	text_append_string(&now, "\n");
	if (before && (status = look_for_gone(folder, before))) {
		/* What is remembered stays: it fails until the device is back. */
		closedir(entries);
		return status;
	}
	while ((entry = readdir(entries)))
		if (entry->d_name[0] != '.' && strcmp(entry->d_name, "lo") &&
		    (status = look_at_device(folder, entry->d_name, before, &now)))
			worst = worst ? worst : status;
	closedir(entries);
	check_remember("devices", now.text);
	return worst;
}
