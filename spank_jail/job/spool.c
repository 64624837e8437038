/* SPDX-License-Identifier: Apache-2.0 */
/* Shows a job's tasks in the jail the part of slurmd's spool directory that they need, such as the batch script.
 * enter_step.c, open_step.c, mpi_files.c, fallback_window.c and job_mount_namespaces.c call it. */
#define _GNU_SOURCE
#include "spool.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <slurm/slurm.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "native/mount/filesystem.h"
#include "native/mount/namespace.h"
#include "native/mount/resolve.h"
#include "native/base/scoped.h"
#include "native/base/sys.h"
#include "job_directory.h"

#define VIEW_ATTRIBUTES (MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV)

/* Its name in the job's directory of the holder; places of per-job mounts begin with "!". */
#define VIEW "spool"
/* The view's directory has a link for each place: so many more, and it is time to look for old ones. */
#define MANY_PLACES 128
/* Seconds between a step's place and its PMIx directory are far fewer than these. */
#define SURELY_STARTED 60

/* Appends `text` and moves on; the caller finds out at the end whether it fitted. */
static size_t append_text(char *path, size_t used, const char *text, size_t length)
{
	if (used + length < PATH_MAX)
		memcpy(path + used, text, length);
	return used + length;
}

static int expand(const char *pattern, const char *node, char path[PATH_MAX], struct jail_error *err)
{
	char host[256] = "";
	size_t used = 0;

	gethostname(host, sizeof(host) - 1);
	host[strcspn(host, ".")] = '\0';
	for (const char *c = pattern; *c; c++) {
		if (c[0] != '%' || (c[1] != 'h' && c[1] != 'n')) {
			used = append_text(path, used, c, 1);
			continue;
		}
		const char *name = *++c == 'h' ? host : node;
		/* The node's name reaches us through an environment: no path may come of it. */
		if (!name || !*name || name[0] == '.' || strchr(name, '/'))
			return jail_fail(err, NULL, 0, "SlurmdSpoolDir is \"%s\" and the name of this node is not known "
					 "here; write spool=PATH in plugstack.conf", pattern);
		used = append_text(path, used, name, strlen(name));
	}
	if (used >= PATH_MAX)
		return jail_fail(err, NULL, 0, "SlurmdSpoolDir is too long");
	path[used] = '\0';
	return 0;
}

int jail_spool_path(const char *argument, const char *node, char path[PATH_MAX], struct jail_error *err)
{
	/* Exported by slurmstepd; its layout is that of the header of the same release train, and a
	 * plugin of another train is refused by Slurm's loader. */
	const slurm_conf_t *configuration = dlsym(RTLD_DEFAULT, "slurm_conf");
	const char *pattern = argument;

	if (!pattern && configuration)
		pattern = configuration->slurmd_spooldir;
	if (!pattern || pattern[0] != '/')
		return jail_fail(err, NULL, 0, "SlurmdSpoolDir is not known here; write spool=PATH in plugstack.conf");
	return expand(pattern, node, path, err);
}

static int path_of(const struct jail_spool *spool, const char *name, char path[PATH_MAX], struct jail_error *err)
{
	if (snprintf(path, PATH_MAX, "%s/%s", spool->path, name) < PATH_MAX)
		return 0;
	return jail_fail(err, NULL, 0, "SlurmdSpoolDir is too long");
}

/* One directory of the spool, read-only and unattached; -1 with ENOENT if the node has none. */
static int clone_folder(const struct jail_spool *spool, const char *name, struct jail_error *err)
{
	char source[PATH_MAX];

	if (path_of(spool, name, source, err))
		return -1;
	return jail_filesystem_clone(source, 0, VIEW_ATTRIBUTES | MOUNT_ATTR_RDONLY, 0, err);
}

static int make_place(int view, const char *name, struct jail_error *err)
{
	if (sys_mkdirat(view, name, 0755) && errno != EEXIST)
		return jail_fail(err, "mkdirat", errno, "cannot make \"%s\" in the view of the spool", name);
	return 0;
}

/* In the job's directory; the view of a job that had other steps is there. */
static int open_view(int directory)
{
	return openat(directory, VIEW, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

static int make_view(const struct jail_spool *spool, int directory, struct jail_error *err)
{
	/* 1 MiB: directories, no files. */
	static const struct jail_parameter parameters[] = { { "size", "1m" }, { "mode", "0755" } };
	scoped_fd view = jail_filesystem_new("tmpfs", parameters, 2, VIEW_ATTRIBUTES | MOUNT_ATTR_NOEXEC, err);

	if (view < 0 || make_place(view, "conf-cache", err) || make_place(view, spool->script, err))
		return -1;
	if (mkdirat(directory, VIEW, 0700) && errno != EEXIST)
		return jail_fail(err, "mkdirat", errno, "cannot make a place for the view of the spool");
	if (jail_job_attach(directory, VIEW, view, err))
		return -1;
	return jail_keep(&view);
}

/* Whether `name` is the place of a step that has ended: it is old, and its PMIx directory is gone. */
static bool is_left_over(const struct jail_spool *spool, int view, const char *name)
{
	char real[PATH_MAX];
	struct stat st;

	return !strncmp(name, "pmix.", 5) && !fstatat(view, name, &st, AT_SYMLINK_NOFOLLOW) &&
	       time(NULL) - st.st_ctime > SURELY_STARTED &&
	       snprintf(real, sizeof(real), "%s/%s", spool->path, name) < (int)sizeof(real) && access(real, F_OK);
}

static void sweep(const struct jail_spool *spool, int view)
{
	struct dirent *entry;
	DIR *list = fdopendir(dup(view));

	while (list && (entry = readdir(list)))
		if (is_left_over(spool, view, entry->d_name))
			(void)unlinkat(view, entry->d_name, AT_REMOVEDIR);
	if (list)
		closedir(list);
}

int jail_spool_prepare(struct jail_spool *spool, int directory, uint32_t job, uint32_t step, struct jail_error *err)
{
	struct stat st;

	snprintf(spool->script, sizeof(spool->script), "job%05u", job);
	spool->pmix[0] = '\0';
	if (step <= SLURM_MAX_NORMAL_STEP_ID)
		snprintf(spool->pmix, sizeof(spool->pmix), "pmix.%u.%u", job, step);
	mode_t old = umask(022);
	scoped_fd view = open_view(directory);
	int result = 0;
	if (view < 0 || fstat(view, &st) || !S_ISDIR(st.st_mode) || faccessat(view, "conf-cache", F_OK, 0)) {
		jail_close(&view);
		view = make_view(spool, directory, err);
		result = view < 0 ? -1 : 0;
	} else if (st.st_nlink % MANY_PLACES == 0) {
		sweep(spool, view);
	}
	if (!result && spool->pmix[0])
		result = make_place(view, spool->pmix, err);
	umask(old);
	return result ? jail_error_at(err, NULL, 0, spool->path) : 0;
}

int jail_spool_take_view(int directory, struct jail_error *err)
{
	scoped_fd view = open_view(directory);
	scoped_fd clone = view < 0 ? -1 : sys_open_tree(view, "", OPEN_TREE_CLONE | AT_EMPTY_PATH);

	if (clone < 0)
		return jail_fail(err, view < 0 ? "openat" : "open_tree", errno, "cannot take the view of the spool");
	if (sys_mount_setattr(clone, "", AT_EMPTY_PATH, MOUNT_ATTR_RDONLY, 0))
		return jail_fail(err, "mount_setattr", errno, "cannot seal the view of the spool");
	return jail_keep(&clone);
}

int jail_spool_attach(const struct jail_spool *spool, int view, int root, struct jail_error *err)
{
	scoped_fd target = jail_resolve_create(root, spool->path, JAIL_CREATE_DIR, err);
	scoped_fd cache = target < 0 ? -1 : clone_folder(spool, "conf-cache", err);

	if (target < 0 || (cache < 0 && err->number != ENOENT))
		return jail_error_at(err, NULL, 0, spool->path);
	if (!sys_move_mount(view, "", target, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) &&
	    (cache < 0 || !sys_move_mount(cache, "", view, "conf-cache", MOVE_MOUNT_F_EMPTY_PATH)))
		return 0;
	jail_fail(err, "move_mount", errno, "cannot mount the view of the spool");
	return jail_error_at(err, NULL, 0, spool->path);
}

/* Mounts a part of the spool at its place, in the tasks' namespace. The way there goes through directories
 * that users write; at worst they get it elsewhere in their own jail. */
static int show(const struct jail_spool *spool, const char *name, int mount, struct jail_error *err)
{
	char path[PATH_MAX];

	if (path_of(spool, name, path, err))
		return -1;
	scoped_fd root = sys_open("/", O_PATH | O_DIRECTORY);
	if (root < 0)
		return jail_fail(err, "open", errno, "cannot open the jail's root");
	scoped_fd place = jail_resolve(root, path, O_DIRECTORY, err);
	if (place < 0)
		return -1;
	if (!sys_move_mount(mount, "", place, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH))
		return 0;
	jail_fail(err, "move_mount", errno, "cannot show a part of the spool in the jail");
	return jail_error_at(err, NULL, 0, path);
}

/* Its user may write the script, too, and cannot give that right back: in the jail it is read-only. */
static int close_script(int directory, struct jail_error *err)
{
	scoped_fd script = openat(directory, "slurm_script", O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	struct stat st;

	if (script < 0 && errno == ENOENT)
		return 0;
	if (script < 0 || fstat(script, &st) || !S_ISREG(st.st_mode) || fchmod(script, st.st_mode & 0555))
		return jail_fail(err, "fchmod", errno, "cannot make the script in the spool read-only");
	return 0;
}

/* Slurm gives the directory to the job's user, by whose rights slurmd writes what sbcast brings: on the node, outside the
 * jail. Slurm's own work there is done by now, and root removes it. */
static int close_to_user(const char *path, struct jail_error *err)
{
	scoped_fd directory = sys_open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);

	if (directory < 0)
		return jail_fail(err, "open", errno, "cannot open the job's directory in the spool");
	if (fchown(directory, 0, 0) || fchmod(directory, 0711))
		return jail_fail(err, "fchown", errno, "cannot make the job's directory in the spool root's");
	return close_script(directory, err);
}

int jail_spool_take_script(const struct jail_spool *spool, struct jail_error *err)
{
	char path[PATH_MAX];

	if (path_of(spool, spool->script, path, err))
		return -1;
	return close_to_user(path, err) ? jail_error_at(err, NULL, 0, path) : clone_folder(spool, spool->script, err);
}

int jail_spool_show_script(const struct jail_spool *spool, int script, struct jail_error *err)
{
	return show(spool, spool->script, script, err);
}

static int visit(const struct jail_spool *spool, int window, int *namespace, bool shared, struct jail_error *err)
{
	scoped_fd job = -1;

	if (jail_namespace_enter(window, err))
		return -1;
	scoped_fd mount = clone_folder(spool, spool->pmix, err);
	if (mount < 0)
		return err->number == ENOENT ? 0 : -1;
	if (jail_namespace_enter(*namespace, err))
		return -1;
	if (shared) {
		job = jail_keep(namespace);
		if (jail_namespace_branch(namespace, err))
			return -1;
	}
	return show(spool, spool->pmix, mount, err);
}

bool jail_spool_has_pmix(const struct jail_spool *spool)
{
	struct jail_error ignored;
	char path[PATH_MAX];

	return spool->pmix[0] && !path_of(spool, spool->pmix, path, &ignored) && !access(path, F_OK);
}

int jail_spool_show_pmix(const struct jail_spool *spool, int window, int *namespace, bool shared, struct jail_error *err)
{
	struct jail_home home = JAIL_HOME_NONE;
	struct jail_error back;

	if (jail_namespace_leave(&home, err))
		return jail_error_at(err, NULL, 0, spool->path);
	int result = visit(spool, window, namespace, shared, err);
	if (jail_namespace_return(&home, &back)) {
		*err = back;
		result = -1;
	}
	return result ? jail_error_at(err, NULL, 0, spool->path) : 0;
}
