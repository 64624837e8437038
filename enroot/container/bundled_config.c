/* SPDX-License-Identifier: Apache-2.0 */
/* Packs configuration files of the user into a bundle (an executable with an image), and unpacks them when it runs.
 * root.c and enroot/command call it. */
#define _GNU_SOURCE
#include "bundled_config.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "native/base/scoped.h"

#define MAX_BUNDLED_FILE (4 * 1024 * 1024)

static const char *const folders[][2] = { { "environ.d", ".env" }, { "mounts.d", ".fstab" }, { "hooks.d", ".sh" } };

#define N_FOLDERS (sizeof(folders) / sizeof(folders[0]))

static int pack_file(const char *path, const char *name, struct text_buffer *out, struct jail_error *err)
{
	struct stat st;
	size_t length = 0;
	/* What is no file stands for "not what is built in", as an empty one does. */
	bool file = !stat(path, &st) && S_ISREG(st.st_mode);
	scoped_free char *text = file ? text_read(AT_FDCWD, path, MAX_BUNDLED_FILE, &length, err) : text_copy("", 0);

	if (!text)
		return -1;
	scoped_free char *line = text_format("%o %zu %s\n", file ? (unsigned)st.st_mode & 0700U : 0600U, length, name);
	text_append_string(out, line);
	text_append(out, text, length);
	return 0;
}

int bundled_config_pack(const char *config, struct text_buffer *out, struct jail_error *err)
{
	int result = 0;

	for (size_t i = 0; i < N_FOLDERS; i++) {
		scoped_free char *folder = text_format("%s/%s", config, folders[i][0]);
		DIR *stream = opendir(folder);
		scoped_list found = { 0 };
		for (struct dirent *entry; stream && (entry = readdir(stream));)
			if (entry->d_name[0] != '.' && text_ends(entry->d_name, folders[i][1]) && !strchr(entry->d_name, '\n'))
				text_list_add(&found, entry->d_name);
		if (stream)
			closedir(stream);
		/* Sorted: the same files give the same bundle. */
		text_list_sort(&found);
		for (size_t j = 0; !result && j < found.n; j++) {
			scoped_free char *path = text_format("%s/%s", folder, found.items[j]);
			scoped_free char *name = text_format("%s/%s", folders[i][0], found.items[j]);
			result = pack_file(path, name, out, err);
		}
	}
	return result;
}

/* FOLDER/NAME with one of our folders, and a name that is no way out of it. */
static bool is_ours(const char *name)
{
	for (size_t i = 0; i < N_FOLDERS; i++) {
		size_t length = strlen(folders[i][0]);
		if (!strncmp(name, folders[i][0], length) && name[length] == '/' && name[length + 1] &&
		    name[length + 1] != '.' && !strchr(name + length + 1, '/'))
			return true;
	}
	return false;
}

static int unpack_file(int config, const char *name, mode_t mode, const char *text, size_t length,
		       struct jail_error *err)
{
	scoped_fd fd = openat(config, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);

	if (fd >= 0 && !text_write(fd, text, length))
		return 0;
	jail_fail(err, "write", errno, "cannot write a configuration file of the bundle");
	return jail_error_at(err, NULL, 0, name);
}

int bundled_config_unpack(const struct text_buffer *text, const char *config, struct jail_error *err)
{
	const char *end = text->text + text->length;
	scoped_fd fd = open(config, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return jail_fail(err, "open", errno, "cannot open the directory of the bundle's configuration");
	for (size_t i = 0; i < N_FOLDERS; i++)
		if (mkdirat(fd, folders[i][0], 0700))
			return jail_fail(err, "mkdir", errno, "cannot make the directory of the bundle's configuration");
	for (const char *at = text->text; at < end;) {
		const char *line_end = memchr(at, '\n', (size_t)(end - at));
		scoped_free char *line = text_copy(at, line_end ? (size_t)(line_end - at) : 0);
		char *rest = line;
		unsigned long mode = strtoul(rest, &rest, 8);
		unsigned long length = strtoul(rest, &rest, 10);
		if (!line_end || *rest != ' ' || mode & ~0700UL || !is_ours(rest + 1) || length > (size_t)(end - line_end - 1))
			return jail_fail(err, NULL, 0, "the configuration files in this bundle are damaged");
		if (unpack_file(fd, rest + 1, (mode_t)mode, line_end + 1, length, err))
			return -1;
		at = line_end + 1 + length;
	}
	return 0;
}
