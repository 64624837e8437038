/* SPDX-License-Identifier: Apache-2.0 */
/* The options --container-*: the grammar of each, and which contradict each other.
 *
 * It knows nothing of Slurm: slurm/input.h gets the options from there. Messages begin with the option's name.
 */
#ifndef PYXIS_REQUEST_H
#define PYXIS_REQUEST_H

#include "native/base/text.h"

enum pyxis_option {
	PYXIS_IMAGE, PYXIS_MOUNTS, PYXIS_WORKDIR, PYXIS_NAME, PYXIS_SAVE, PYXIS_MOUNT_HOME, PYXIS_NO_MOUNT_HOME,
	PYXIS_REMAP_ROOT, PYXIS_NO_REMAP_ROOT, PYXIS_ENTRYPOINT, PYXIS_NO_ENTRYPOINT, PYXIS_ENTRYPOINT_LOG,
	PYXIS_WRITABLE, PYXIS_READONLY, PYXIS_ENV, PYXIS_UNSHARE, PYXIS_N_OPTIONS
};

/* "container-image" and its kind. */
extern const char *const pyxis_option_names[PYXIS_N_OPTIONS];
/* "PYXIS_CONTAINER_IMAGE" and its kind; NULL for the "no-" ones, which are the other's value 0. */
extern const char *const pyxis_option_variables[PYXIS_N_OPTIONS];

enum pyxis_switch { PYXIS_UNSET, PYXIS_NO, PYXIS_YES };

enum pyxis_name_flag { PYXIS_AUTO, PYXIS_CREATE, PYXIS_EXEC, PYXIS_NO_EXEC };

enum { PYXIS_NET = 1, PYXIS_IPC = 2, PYXIS_UTS = 4 };

/* Starts as { 0 }. */
struct pyxis_request {
	char *image;             /* a path that begins with "." or "/", or a URI */
	struct text_list mounts; /* lines of fstab */
	struct text_list sources; /* absolute paths among their sources */
	char *workdir, *name, *save;
	enum pyxis_name_flag name_flag;
	enum pyxis_switch mount_home, remap_root, entrypoint, entrypoint_log, writable;
	struct text_list environment; /* names */
	unsigned unshare;
};

/* Takes one option's value as given; `value` is NULL for an option without one. A later value replaces an earlier.
 * Returns 0 or -1. */
int pyxis_request_take(struct pyxis_request *request, enum pyxis_option option, const char *value, struct jail_error *err);

/* The same for the value of the option's environment variable: switches have a word there. */
int pyxis_request_take_variable(struct pyxis_request *request, enum pyxis_option option, const char *value,
				struct jail_error *err);

/* Whether the request has `option`. */
bool pyxis_request_gives(const struct pyxis_request *request, enum pyxis_option option);

void pyxis_request_free(struct pyxis_request *request);

/* Whether the image is a file of the node. */
bool pyxis_image_is_path(const char *image);
/* As the user would write it: the URI without docker://. */
const char *pyxis_image_title(const char *image);

/* One of SRC[:DST[:FLAGS]], as a line of fstab, a new string; NULL: wrong. `source` becomes the path in `mount` that
 * must exist, a new string, or NULL. */
char *pyxis_mount_line(const char *mount, char **source, struct jail_error *err);

/* 1/true/yes/y, 0/false/no/n. */
int pyxis_switch_parse(const char *value, enum pyxis_switch *on);

/* The names that enroot knows: of a container that was given one, in a job's scope unless `job` is 0; and of one
 * that was not. New strings. */
char *pyxis_container_named(const char *name, unsigned job);
char *pyxis_container_unnamed(unsigned job, unsigned step);
/* Of all that go with a job, as fnmatch(3) takes it: those of its steps, and with `job_scope` the named ones. A new
 * string. */
char *pyxis_container_pattern(unsigned job, bool job_scope);

#define scoped_request __attribute__((cleanup(pyxis_request_free))) struct pyxis_request

#endif
