/* SPDX-License-Identifier: Apache-2.0 */
/* Reads enroot's configuration from the environment, enroot.conf and its drop-ins. Files of this folder, enroot/,
 * other libraries in native/ and pyxis/ call it. */
#define _GNU_SOURCE
#include "settings.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "native/base/scoped.h"
#include "expand.h"
#include "edit_distance.h"
#include "number.h"

#define MAX_FILE (1024 * 1024)

extern char **environ;

/* Evaluated in this order: those below may refer to those above. */
static const char *const defaults[][2] = {
	{ "ENROOT_LIBRARY_PATH", "/usr/lib/enroot" },
	{ "ENROOT_SYSCONF_PATH", "/etc/enroot" },
	{ "ENROOT_RUNTIME_PATH", "${XDG_RUNTIME_DIR:-/run}/enroot" },
	{ "ENROOT_CONFIG_PATH", "${XDG_CONFIG_HOME:-${HOME}/.config}/enroot" },
	{ "ENROOT_CACHE_PATH", "${XDG_CACHE_HOME:-${HOME}/.cache}/enroot" },
	{ "ENROOT_DATA_PATH", "${XDG_DATA_HOME:-${HOME}/.local/share}/enroot" },
	{ "ENROOT_TEMP_PATH", "${TMPDIR:-/tmp}" },
	/* The level decides how long it takes: 3, and not the 15 of mksquashfs. */
	{ "ENROOT_SQUASH_OPTIONS", "-comp lz4 -b 128K" },
	{ "ENROOT_MAX_PROCESSORS", "$(nproc)" },
	{ "ENROOT_MAX_CONNECTIONS", "10" },
	{ "ENROOT_CONNECT_TIMEOUT", "30" },
	{ "ENROOT_TRANSFER_TIMEOUT", "0" },
	{ "ENROOT_TRANSFER_RETRIES", "0" },
	/* The image cache: docs/enroot.md. */
	{ "ENROOT_CACHE_IMAGES", "yes" },
	{ "ENROOT_CACHE_LAYERS", "yes" },
	{ "ENROOT_CACHE_LINK", "yes" },
	{ "ENROOT_CACHE_MAX_SIZE", "0" },
	{ "ENROOT_CACHE_MAX_SHARE", "50" },
	{ "ENROOT_CACHE_PATIENCE", "60" },
	{ "ENROOT_CACHE_WAIT", "600" },
	{ "ENROOT_CACHE_OFFLINE", "no" },
	{ "ENROOT_SHARED_CACHE_PATH", "" },
	{ "ENROOT_SHARED_CACHE_TRUST", "" },
	{ "ENROOT_SHARED_CACHE_PRIVATE", "no" },
	{ "ENROOT_LOGIN_SHELL", "yes" },
	{ "ENROOT_NATIVE_OVERLAYFS", "yes" },
	{ "ENROOT_KERNEL_IMAGES", "no" },
	{ "ENROOT_ALLOW_SUPERUSER", "no" },
	{ "ENROOT_ALLOW_HTTP", "no" },
	{ "ENROOT_ROOTFS_WRITABLE", "no" },
	{ "ENROOT_REMAP_ROOT", "no" },
	{ "ENROOT_BUNDLE_ALL", "no" },
	{ "ENROOT_BUNDLE_CHECKSUM", "no" },
	{ "ENROOT_FORCE_OVERRIDE", "no" },
	{ "ENROOT_MOUNT_HOME", "no" },
	{ "ENROOT_RESTRICT_DEV", "no" },
	{ "ENROOT_UNSHARE_NET", "no" },
	{ "ENROOT_UNSHARE_PID", "no" },
	{ "ENROOT_UNSHARE_IPC", "no" },
	{ "ENROOT_UNSHARE_UTS", "no" },
};

bool settings_is_key(const char *key)
{
	static const char *const names[] = { "SSL_CERT_DIR", "SSL_CERT_FILE", "all_proxy", "no_proxy", "http_proxy",
					     "https_proxy" };
	static const char *const prefixes[] = { "ENROOT_", "MELLANOX_", "NVIDIA_" };

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (!strcmp(key, names[i]))
			return true;
	for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++)
		if (text_starts(key, prefixes[i]) && key[strlen(prefixes[i])])
			return true;
	return false;
}

static const char *lookup(void *context, const char *name)
{
	const struct settings *settings = context;
	const char *value = variables_get(&settings->variables, name);

	if (!value)
		value = getenv(name);
	/* Services and job steps may come without it. */
	if (!value && !strcmp(name, "HOME")) {
		const struct passwd *account = getpwuid(geteuid());
		value = account ? account->pw_dir : NULL;
	}
	return value;
}

/* Hooks may have settings of their own: this one declares them. Its lines add up, so that each drop-in says those of its hook. */
#define DECLARES "ENROOT_HOOK_SETTINGS"

static int declare(struct settings *settings, const char *names, struct jail_error *err)
{
	const char *before = variables_get(&settings->variables, DECLARES);
	scoped_free char *all = text_format("%s%s%s", before ? before : "", before ? " " : "", names);
	scoped_free char *copy = text_copy(names, strlen(names));
	char *rest = copy, *name;

	while ((name = strsep(&rest, " \t")))
		if (*name && (!text_starts(name, "ENROOT_") || !variables_is_name(name, strlen(name))))
			return jail_fail(err, NULL, 0, DECLARES " declares \"%s\"; write names that begin with ENROOT_, with blanks between", name);
	variables_set(&settings->variables, DECLARES, all);
	return 0;
}

static bool is_declared(const struct settings *settings, const char *key)
{
	const char *word = variables_get(&settings->variables, DECLARES);
	size_t length;

	for (; word && *word; word += length) {
		word += strspn(word, " \t");
		length = strcspn(word, " \t");
		if (length == strlen(key) && !strncmp(word, key, length))
			return true;
	}
	return false;
}

static int set(struct settings *settings, const char *key, const char *text, struct jail_error *err)
{
	const struct expand_request request = { .mode = EXPAND_SHELL, .lookup = lookup, .context = settings };
	scoped_free char *value = expand(text, &request, err);

	if (value && !strcmp(key, DECLARES))
		return declare(settings, value, err);
	if (!value || number_check(key, value, err))
		return -1;
	variables_set(&settings->variables, key, value);
	return 0;
}

/* Those without a default. The last two are upstream's, and mean nothing here. */
static const char *const others[] = { DECLARES, "ENROOT_CDI_PATH", "ENROOT_ROOTFS", "ENROOT_ZSTD_OPTIONS", "ENROOT_GZIP_PROGRAM" };

/* A misspelt setting would be ignored, and nobody would know why. */
static int check_known(const struct settings *settings, const char *key, struct jail_error *err)
{
	const size_t n_defaults = sizeof(defaults) / sizeof(defaults[0]), n = n_defaults + sizeof(others) / sizeof(others[0]);
	const char *nearest = NULL;
	unsigned letters, least = 0;

	if (!text_starts(key, "ENROOT_") || is_declared(settings, key))
		return 0;
	for (size_t i = 0; i < n; i++) {
		const char *known = i < n_defaults ? defaults[i][0] : others[i - n_defaults];
		if (!strcmp(key, known))
			return 0;
		letters = edit_distance(key, known);
		if (!nearest || letters < least) {
			nearest = known;
			least = letters;
		}
	}
	return jail_fail(err, NULL, 0, "\"%s\" is no setting; write %s, if that is meant, or declare a hook's own setting before it: "
			 DECLARES " %s", key, nearest, key);
}

/* Cuts "KEY value" or "KEY=value" in two. NULL: no key that a configuration may set, and `err` says so. */
static char *cut(const struct settings *settings, char *line, char **value, struct jail_error *err)
{
	size_t key = strcspn(line, " \t=");
	size_t end = strlen(line);

	while (end && strchr(" \t\r", line[end - 1]))
		line[--end] = '\0';
	*value = line + key;
	if (**value) {
		*(*value)++ = '\0';
		*value += strspn(*value, " \t");
		if (**value == '=' && line[key] != '=')
			*value += 1 + strspn(*value + 1, " \t");
	}
	if (settings_is_key(line) && variables_is_name(line, strlen(line)))
		return check_known(settings, line, err) ? NULL : line;
	jail_fail(err, NULL, 0, "\"%.64s\" is no setting; there are ENROOT_*, MELLANOX_*, NVIDIA_*, SSL_CERT_DIR, "
		  "SSL_CERT_FILE and {all,no,http,https}_proxy", line);
	return NULL;
}

int settings_read(struct settings *settings, const char *text, const char *name, struct jail_error *err)
{
	scoped_free char *copy = text_copy(text, strlen(text));
	char *rest = copy, *line, *value;

	for (int number = 1; (line = strsep(&rest, "\n")); number++) {
		line += strspn(line, " \t");
		if (!*line || *line == '#' || *line == '\r')
			continue;
		char *key = cut(settings, line, &value, err);
		const bool is_set = key && strcmp(key, DECLARES) && variables_get(&settings->variables, key);
		if (!key || (!is_set && set(settings, key, value, err)))
			return jail_error_at(err, name, number, NULL);
	}
	return 0;
}

int settings_read_script(struct settings *settings, const char *text, const char *name, struct jail_error *err)
{
	scoped_free char *copy = text_copy(text, strlen(text));
	char *rest = copy, *line, *value;

	for (int number = 1; (line = strsep(&rest, "\n")); number++) {
		if (!text_starts(line, "#ENROOT_"))
			continue;
		char *key = cut(settings, line + 1, &value, err);
		if (!key || set(settings, key, value, err))
			return jail_error_at(err, name, number, NULL);
	}
	return 0;
}

static int read_file(struct settings *settings, const char *path, struct jail_error *err)
{
	scoped_free char *text = text_read(AT_FDCWD, path, MAX_FILE, NULL, err);

	if (!text)
		return err->number == ENOENT ? 0 : -1;
	return settings_read(settings, text, path, err);
}

static int read_drop_ins(struct settings *settings, const char *folder, struct jail_error *err)
{
	struct dirent **names;
	int n = scandir(folder, &names, NULL, alphasort), result = 0;

	for (int i = 0; i < n; i++) {
		scoped_free char *path = text_format("%s/%s", folder, names[i]->d_name);
		if (!result && names[i]->d_name[0] != '.' && text_ends(path, ".conf"))
			result = read_file(settings, path, err);
		free(names[i]);
	}
	if (n >= 0)
		free(names);
	return result;
}

int settings_load(struct settings *settings, const char *script, struct jail_error *err)
{
	*settings = (struct settings){ 0 };
	for (char **pair = environ; *pair; pair++) {
		scoped_free char *key = text_copy(*pair, strcspn(*pair, "="));
		if (!settings_is_key(key))
			continue;
		if (number_check(key, *pair + strlen(key) + ((*pair)[strlen(key)] == '='), err))
			return jail_error_at(err, "the environment", 0, NULL);
		variables_set_pair(&settings->variables, *pair);
	}
	const char *folder = variables_get(&settings->variables, "ENROOT_SYSCONF_PATH");
	scoped_free char *path = text_format("%s/enroot.conf", folder ? folder : "/etc/enroot");
	scoped_free char *drop_ins = text_format("%s.d", path);
	if (read_file(settings, path, err) || read_drop_ins(settings, drop_ins, err))
		return -1;
	for (size_t i = 0; i < sizeof(defaults) / sizeof(defaults[0]); i++)
		if (!variables_get(&settings->variables, defaults[i][0]) &&
		    set(settings, defaults[i][0], defaults[i][1], err))
			return -1;
	if (!script)
		return 0;
	scoped_free char *text = text_read(AT_FDCWD, script, MAX_FILE, NULL, err);
	return text ? settings_read_script(settings, text, script, err) : -1;
}

const char *settings_get(const struct settings *settings, const char *key)
{
	const char *value = variables_get(&settings->variables, key);

	return value ? value : "";
}

bool settings_true(const struct settings *settings, const char *key)
{
	return settings_means_yes(settings_get(settings, key));
}

long settings_number(const struct settings *settings, const char *key, long otherwise)
{
	const char *value = settings_get(settings, key);
	char *end;
	long number = strtol(value, &end, 10);

	return *value && !*end && number >= 0 ? number : otherwise;
}

void settings_free(struct settings *settings)
{
	variables_free(&settings->variables);
}
