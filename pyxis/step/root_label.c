/* SPDX-License-Identifier: Apache-2.0 */
/* Writes and reads the label of a container root, a file in it that says which job and step made it. container.c,
 * image.c, leftovers.c and pyxis/slurm call it. */
#define _GNU_SOURCE
#include "root_label.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "native/base/scoped.h"

static char *mark_path(const char *root)
{
	return text_format("%s/.lock", root);
}

static char *read_mark(const char *root)
{
	struct jail_error ignored;
	scoped_free char *path = mark_path(root);
	/* A container can write there, and so could who made its image: a FIFO, for whose other end nobody is to wait. */
	scoped_fd fd = text_open_plain(AT_FDCWD, path, O_RDONLY);

	return fd < 0 ? NULL : text_read_open(fd, path, 4096, NULL, &ignored);
}

void pyxis_root_label_write(const char *root, const struct pyxis_owner *owner, const char *cluster)
{
	scoped_free char *path = mark_path(root);
	scoped_free char *text = text_format("%u.%u%s%s\n", owner->job, owner->step, cluster ? " temporary " : "",
					     cluster ? cluster : "");
	/* Of root's containers it may be a device, if the image has one there: nothing is written to what is no file. */
	scoped_fd fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);

	if (fd < 0)
		fd = text_open_plain(AT_FDCWD, path, O_WRONLY | O_TRUNC);

	/* Without it another node of the same step refuses, or the epilog takes it by its name; that is all. */
	if (fd >= 0 && text_write(fd, text, strlen(text)))
		return;
}

bool pyxis_root_label_is_of(const char *root, const struct pyxis_owner *owner)
{
	scoped_free char *text = read_mark(root);
	scoped_free char *own = text_format("%u.%u\n", owner->job, owner->step);

	return text && !strcmp(text, own);
}

bool pyxis_root_label_is_temporary(const char *root, const char *cluster)
{
	scoped_free char *text = read_mark(root);
	scoped_free char *end = text_format(" temporary %s\n", cluster);

	return text && *cluster && text_ends(text, end);
}

char *pyxis_root_label_pattern(unsigned job, bool job_scope)
{
	return text_format(job_scope ? "%u.*" : "%u.* temporary *", job);
}
