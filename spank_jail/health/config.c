/* SPDX-License-Identifier: Apache-2.0 */
/* Reads checks.conf and health.conf, which say which checks a node has, their limits and what follows. node_health.c
 * calls it. */
#define _GNU_SOURCE
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "native/base/scoped.h"
#include "native/base/trust.h"

#define MOST_CONFIG_BYTES (64 * 1024)
/* The longest period that a setting may name: 30 days. */
#define MOST_SECONDS (30 * 86400)

static const struct health_check defaults = {
	.limit_s = 10, .strikes = 3, .of = 5, .passes = 3, .drains = true, .undo = true,
};

static bool is_name(const char *text)
{
	size_t length = strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789-");

	return length && length < HEALTH_NAME_SIZE && !text[length] && text[0] >= 'a' && text[0] <= 'z';
}

static struct health_check *add(struct health_config *config, const char *name)
{
	struct health_check *check;

	for (size_t i = 0; i < config->n; i++)
		if (!strcmp(config->checks[i].name, name))
			return &config->checks[i];
	if (config->n == HEALTH_MOST_CHECKS)
		return NULL;
	check = &config->checks[config->n++];
	*check = defaults;
	memcpy(check->name, name, strlen(name) + 1);
	return check;
}

static bool parse_number(const char *text, unsigned least, unsigned most, unsigned *number)
{
	char *end;

	errno = 0;
	unsigned long value = strtoul(text, &end, 10);
	if (errno || end == text || *end || *text < '0' || *text > '9' || value < least || value > most)
		return false;
	*number = (unsigned)value;
	return true;
}

static bool parse_switch(const char *text, bool *on)
{
	*on = !strcmp(text, "yes");
	return *on || !strcmp(text, "no");
}

/* N/M. */
static bool parse_strikes(const char *text, struct health_check *check)
{
	const char *slash = strchr(text, '/');
	char first[12] = "";

	if (!slash || (size_t)(slash - text) >= sizeof(first))
		return false;
	memcpy(first, text, (size_t)(slash - text));
	return parse_number(slash + 1, 1, HEALTH_MOST_STRIKES, &check->of) &&
	       parse_number(first, 1, check->of, &check->strikes);
}

/* What a user can make fail does not drain the node, unless the line goes on to say so. */
static bool parse_user(const char *text, struct health_check *check)
{
	size_t length = strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789_-");

	if (!length || length >= sizeof(check->user) || text[length] || *text == '-')
		return false;
	memcpy(check->user, text, length + 1);
	check->drains = false;
	return true;
}

/* In the place of an argument of that key. */
static void set_argument(struct text_list *arguments, const char *word, size_t key)
{
	for (size_t i = 0; i < arguments->n; i++)
		if (!strncmp(arguments->items[i], word, key + 1)) {
			free(arguments->items[i]);
			arguments->items[i] = text_copy(word, strlen(word));
			return;
		}
	text_list_add(arguments, word);
}

static bool set(struct health_check *check, const char *word)
{
	const char *equals = strchr(word, '=');
	size_t key = equals ? (size_t)(equals - word) : 0;
	const char *value = equals ? equals + 1 : "";

#define IS(name) (key == sizeof(name) - 1 && !memcmp(word, name, key))
	if (!strcmp(word, "off") || !strcmp(word, "on")) {
		check->off = word[1] == 'f';
		return true;
	}
	if (!key)
		return false;
	if (IS("limit"))
		return parse_number(value, 1, 3600, &check->limit_s);
	if (IS("strikes"))
		return parse_strikes(value, check);
	if (IS("passes"))
		return parse_number(value, 1, 1000, &check->passes);
	if (IS("every"))
		return parse_number(value, 0, MOST_SECONDS, &check->every_s);
	if (IS("action")) {
		check->drains = !strcmp(value, "drain");
		return check->drains || !strcmp(value, "warn");
	}
	if (IS("undo"))
		return parse_switch(value, &check->undo);
	if (IS("optional"))
		return parse_switch(value, &check->optional);
	if (IS("user"))
		return parse_user(value, check);
	if (IS("prolog"))
		return parse_switch(value, &check->prolog);
	set_argument(&check->arguments, word, key);
	return true;
}

static bool set_budget(struct health_config *config, const char *word)
{
	if (text_starts(word, "least="))
		return parse_number(word + 6, 0, 65000, &config->least);
	if (text_starts(word, "percent="))
		return parse_number(word + 8, 0, 100, &config->percent);
	return text_starts(word, "within=") && parse_number(word + 7, 1, MOST_SECONDS, &config->within_s);
}

static int wrong(struct jail_error *err, const char *name, int line, const char *word, const char *wanted)
{
	jail_fail(err, NULL, 0, "'%s' is not %s; docs/health.md has the lines of this file", word, wanted);
	return jail_error_at(err, name, line, NULL);
}

static int read_line(struct health_config *config, char *text, const char *name, int number, struct jail_error *err)
{
	char *rest = text, *kind = strtok_r(rest, " \t", &rest), *word;
	struct health_check *check = NULL;

	if (!kind || *kind == '#')
		return 0;
	if (!strcmp(kind, "folder")) {
		word = strtok_r(NULL, " \t", &rest);
		if (!word || *word != '/')
			return wrong(err, name, number, word ? word : "", "an absolute path of a folder");
		free(config->site);
		config->site = text_copy(word, strlen(word));
		return 0;
	}
	if (!strcmp(kind, "check")) {
		word = strtok_r(NULL, " \t", &rest);
		if (!word || !is_name(word))
			return wrong(err, name, number, word ? word : "", "the name of a check");
		if (!(check = add(config, word)))
			return wrong(err, name, number, word, "one of 64 checks: there are more");
	} else if (strcmp(kind, "budget")) {
		return wrong(err, name, number, kind, "check, budget or folder");
	}
	while ((word = strtok_r(NULL, " \t", &rest)))
		if (check ? !set(check, word) : !set_budget(config, word))
			return wrong(err, name, number, word, check ? "a setting of a check, or out of its range" : "a setting of the budget");
	return 0;
}

int health_config_lines(struct health_config *config, char *text, const char *name, struct jail_error *err)
{
	char *line;

	for (int number = 1; (line = strsep(&text, "\n")); number++)
		if (read_line(config, line, name, number, err))
			return -1;
	return 0;
}

/* 1: read; 0: it is not there. */
static int read_file(struct health_config *config, const char *path, struct jail_error *err)
{
	if (access(path, F_OK) && errno == ENOENT)
		return 0;
	scoped_fd fd = jail_open_trusted(path, 0, "health configuration", err);
	if (fd < 0)
		return -1;
	scoped_free char *text = text_read_open(fd, path, MOST_CONFIG_BYTES, NULL, err);
	return !text || health_config_lines(config, text, path, err) ? -1 : 1;
}

/* Programs of a folder: those of checks that have lines, and in a site's folder all others, too. */
static int find_programs(struct health_config *config, const char *folder, bool any, struct jail_error *err)
{
	scoped_fd fd = jail_open_trusted(folder, 1, "folder of health checks", err);
	struct dirent *entry;
	DIR *entries;

	if (fd < 0)
		return -1;
	if (!(entries = opendir(folder))) {
		jail_fail(err, "opendir", errno, "cannot read the folder of health checks");
		return jail_error_at(err, folder, 0, NULL);
	}
	while ((entry = readdir(entries))) {
		struct stat st;
		struct health_check *check;

		if (!is_name(entry->d_name) || fstatat(fd, entry->d_name, &st, 0) || !S_ISREG(st.st_mode))
			continue;
		check = any ? add(config, entry->d_name) : NULL;
		for (size_t i = 0; i < config->n && !check; i++)
			if (!strcmp(config->checks[i].name, entry->d_name))
				check = &config->checks[i];
		if (!check)
			continue;
		free(check->program);
		check->program = text_format("%s/%s", folder, entry->d_name);
	}
	closedir(entries);
	return 0;
}

int health_config_read(struct health_config *config, const char *file, const char *folder, struct jail_error *err)
{
	struct health_config first = { 0 };
	scoped_free char *own = text_format("%s/checks.conf", folder);

	*config = (struct health_config){ .least = 2, .percent = 10, .within_s = 3600 };
	/* Once for the site's folder, and again at the end: its lines come before the cluster's. */
	int there = read_file(&first, file, err);
	if (there > 0 && read_file(config, own, err) >= 0 && !find_programs(config, folder, false, err)) {
		scoped_free char *site = first.site && !access(first.site, F_OK) ? text_format("%s/checks.conf", first.site) : NULL;
		if (site && (read_file(config, site, err) < 0 || find_programs(config, first.site, true, err)))
			there = -1;
		else if (read_file(config, file, err) < 0)
			there = -1;
	} else if (there > 0) {
		there = -1;
	}
	health_config_free(&first);
	return there;
}

const struct health_check *health_config_find(const struct health_config *config, const char *name)
{
	for (size_t i = 0; i < config->n; i++)
		if (!strcmp(config->checks[i].name, name) && !config->checks[i].off)
			return &config->checks[i];
	return NULL;
}

void health_config_free(struct health_config *config)
{
	for (size_t i = 0; i < config->n; i++) {
		free(config->checks[i].program);
		text_list_free(&config->checks[i].arguments);
	}
	free(config->site);
	*config = (struct health_config){ 0 };
}
