#define _GNU_SOURCE
#include "spool.h"

#include <dlfcn.h>
#include <slurm/slurm.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "../core/filesystem.h"
#include "../core/resolve.h"
#include "../core/scoped.h"
#include "../core/sys.h"

#define VIEW_ATTRIBUTES (MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV)

/* Appends `text` and moves on; the caller finds out at the end whether it fitted. */
static size_t append(char *path, size_t used, const char *text, size_t length)
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
			used = append(path, used, c, 1);
			continue;
		}
		const char *name = *++c == 'h' ? host : node;
		/* The node's name reaches us through an environment: no path may come of it. */
		if (!name || !*name || name[0] == '.' || strchr(name, '/'))
			return jail_fail(err, NULL, 0, "SlurmdSpoolDir is \"%s\" and the name of this node is not known "
					 "here; write spool=PATH in plugstack.conf", pattern);
		used = append(path, used, name, strlen(name));
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

/* A read-only view of one directory of the spool, if the node has it. */
static int show(const struct jail_spool *spool, const char *name, int target, struct jail_error *err)
{
	char source[PATH_MAX];

	if (snprintf(source, sizeof(source), "%s/%s", spool->path, name) >= (int)sizeof(source))
		return jail_fail(err, NULL, 0, "SlurmdSpoolDir is too long");
	scoped_fd mount = jail_filesystem_clone(source, 0, VIEW_ATTRIBUTES | MOUNT_ATTR_RDONLY, 0, err);
	if (mount < 0)
		return err->number == ENOENT ? 0 : -1;
	if (sys_move_mount(mount, "", target, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH))
		return jail_fail(err, "move_mount", errno, "cannot show \"%s\" in the jail", source);
	return 0;
}

/* Makes the directory `name` in the view and opens it. */
static int make_place(const struct jail_spool *spool, const char *name, struct jail_error *err)
{
	if (sys_mkdirat(spool->view, name, 0755))
		return jail_fail(err, "mkdirat", errno, "cannot make \"%s\" in the view of the spool", name);
	return jail_resolve(spool->view, name, O_DIRECTORY, err);
}

static int place_and_show(const struct jail_spool *spool, const char *name, struct jail_error *err)
{
	scoped_fd place = make_place(spool, name, err);

	return place < 0 ? -1 : show(spool, name, place, err);
}

/* 1 MiB: three directories, no files. */
static const struct jail_parameter view_parameters[] = { { "size", "1m" }, { "mode", "0755" } };

static int fill(struct jail_spool *spool, int root, uint32_t job, uint32_t step, struct jail_error *err)
{
	char script[32];

	snprintf(spool->pmix, sizeof(spool->pmix), "pmix.%u.%u", job, step);
	snprintf(script, sizeof(script), "job%05u", job);
	spool->view = jail_filesystem_new("tmpfs", view_parameters, 2, VIEW_ATTRIBUTES | MOUNT_ATTR_NOEXEC, err);
	if (spool->view < 0)
		return -1;
	scoped_fd target = jail_resolve_create(root, spool->path, JAIL_CREATE_DIR, err);
	if (target < 0)
		return -1;
	if (sys_move_mount(spool->view, "", target, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH))
		return jail_fail(err, "move_mount", errno, "cannot mount the view of the spool");
	if (place_and_show(spool, "conf-cache", err) || place_and_show(spool, script, err))
		return -1;
	if (step == SLURM_BATCH_SCRIPT) /* a batch script is no MPI task */
		return 0;
	spool->pmix_target = make_place(spool, spool->pmix, err);
	if (spool->pmix_target < 0)
		return -1;
	/* Shared, so that the PMIx directory, mounted later, reaches the copy that the tasks get. */
	if (sys_mount_setattr(spool->view, "", AT_EMPTY_PATH, 0, JAIL_MS_SHARED))
		return jail_fail(err, "mount_setattr", errno, "cannot share the view of the spool");
	return 0;
}

int jail_spool_attach(struct jail_spool *spool, int root, uint32_t job, uint32_t step, struct jail_error *err)
{
	mode_t old = umask(022);
	int result = fill(spool, root, job, step, err);

	umask(old);
	return result ? jail_error_at(err, NULL, 0, spool->path) : 0;
}

int jail_spool_seal(struct jail_spool *spool, struct jail_error *err)
{
	struct stat here, view;
	scoped_fd tree = sys_open(".", O_PATH | O_DIRECTORY);

	if (tree < 0)
		return jail_fail(err, "open", errno, "cannot open the jail's tree");
	scoped_fd copy = jail_resolve(tree, spool->path, O_DIRECTORY, err);
	if (copy < 0)
		return -1;
	/* A user may have swapped a link on the way to it since it was mounted. */
	if (fstat(copy, &here) || fstat(spool->view, &view))
		return jail_fail(err, "fstat", errno, "cannot look at the view of the spool");
	if (here.st_dev != view.st_dev || here.st_ino != view.st_ino)
		return jail_fail(err, NULL, 0, "\"%s\" in the jail was changed while it was being mounted; try again",
				 spool->path);
	if (sys_mount_setattr(copy, "", AT_EMPTY_PATH, MOUNT_ATTR_RDONLY, JAIL_MS_SLAVE))
		return jail_fail(err, "mount_setattr", errno, "cannot seal the view of the spool");
	return 0;
}

int jail_spool_show_pmix(struct jail_spool *spool, struct jail_error *err)
{
	if (spool->pmix_target < 0)
		return 0;
	int result = show(spool, spool->pmix, spool->pmix_target, err);
	return result ? jail_error_at(err, NULL, 0, spool->path) : 0;
}

void jail_spool_close(struct jail_spool *spool)
{
	jail_close(&spool->view);
	jail_close(&spool->pmix_target);
}
