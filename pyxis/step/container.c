/* SPDX-License-Identifier: Apache-2.0 */
/* Opens the container of a step: joins one that runs, or makes and starts one from an image. It runs in the step's
 * first task on a node. Files of this folder and pyxis/ call it. */
#define _GNU_SOURCE
#include "container.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "native/settings/settings.h"
#include "native/base/argument.h"
#include "native/base/scoped.h"
#include "container_run.h"
#include "image.h"
#include "join_check.h"
#include "root_label.h"
#include "name_lock.h"
#include "pmix.h"
#include "program_log.h"
#include "running_containers.h"
#include "save.h"
#include "step_namespaces.h"

/* The settings that enroot will have, read where it will read them. */
static char *find_root(struct pyxis_container *container, struct jail_error *err)
{
	struct settings settings;
	char **own = environ;

	environ = container->environment.list.items;
	int result = settings_load(&settings, NULL, err);
	/* What is in ENROOT_DATA_PATH: a mounted file needs no home that one can write to, and a node may have none of the user's. */
	if (!result && !pyxis_image_is_mounted_alone(container))
		result = settings_directory(&settings, "ENROOT_DATA_PATH", err);
	environ = own;
	container->remapped = !result && container->owner.uid && settings_true(&settings, "ENROOT_REMAP_ROOT");
	container->unshare = result ? 0 : pyxis_namespaces_asked(&settings);
	char *root = result ? NULL : text_format("%s/%s", settings_get(&settings, "ENROOT_DATA_PATH"), container->root);
	settings_free(&settings);
	return root;
}

static bool path_exists(const char *path)
{
	struct stat st;

	return !stat(path, &st);
}

/* The administrator wants the kernel to mount images: enroot says why it did not, where it might have. */
static void tell_kernel(const struct pyxis_container *container)
{
	scoped_free char *text = container->arguments->image_mount == PYXIS_MOUNT_KERNEL ? pyxis_log_text(container->log, 0, NULL)
											 : NULL;
	const char *found = text ? strstr(text, "ENROOT_KERNEL_IMAGES") : NULL;
	scoped_free char *line = found ? text_copy(found, strcspn(found, "\n")) : NULL;

	if (line)
		pyxis_container_say(container, "image_mount=kernel: %s%s", line, "");
}

/* Where enroot has no reason of its own, what it ran has ended: its output is all there is, and may be nothing. */
static void explain_entrypoint(struct pyxis_container *container, bool entrypoint)
{
	scoped_free char *text = entrypoint ? pyxis_log_text(container->log, 0, NULL) : NULL;
	scoped_free char *reason = text ? pyxis_log_reason(text) : NULL;

	if (!entrypoint || (reason && !strstr(reason, "cannot run the shell")))
		return;
	free(container->advice);
	container->advice = text_format("%s\n  next: --no-container-entrypoint starts the container without it", reason
					? "the image's entrypoint is begun by a shell, which this image does not have"
					: "the image's entrypoint ended, and did not run what it was given (exec \"$@\")");
}

/* `enroot start` of a root or an image, to be held. */
static int start(struct pyxis_container *container, const char *what, bool entrypoint, char *const *job, struct jail_error *err)
{
	const struct pyxis_request *request = container->request;
	scoped_list arguments = { 0 };
	int ready[2];

	if (pipe2(ready, O_CLOEXEC))
		return jail_fail(err, "pipe2", errno, "cannot start the container");
	text_list_add(&arguments, "enroot");
	text_list_add(&arguments, "start");
	text_list_add(&arguments, entrypoint ? "--hold-rc" : "--hold");
	text_list_take(&arguments, text_format("%d,%d,%s", ready[1], container->life, container->name));
	/* What the user mounts may hide the others. */
	const struct text_list *const mounts[] = { &container->places, &request->mounts };
	for (size_t list = 0; list < 2; list++)
		for (size_t i = 0; i < mounts[list]->n; i++) {
			text_list_add(&arguments, "--mount");
			text_list_add(&arguments, mounts[list]->items[i]);
		}
	for (size_t i = 0; i < request->environment.n; i++) {
		const char *name = request->environment.items[i], *value = jail_value_in(job, name);
		if (value) {
			text_list_add(&arguments, "--env");
			text_list_take(&arguments, text_format("%s=%s", name, value));
		}
	}
	text_list_add(&arguments, what);
	if (pyxis_container_begin(container, "enroot", err))
		return -1;
	container->member = pyxis_runtime_start(arguments.items, &container->environment, container->log, ready, container->life,
						err);
	jail_close(&ready[0]);
	jail_close(&ready[1]);
	if (!container->member) {
		explain_entrypoint(container, entrypoint);
		return jail_fail(err, NULL, 0, "container start failed: %s",
				 request->image ? pyxis_image_title(request->image) : request->name);
	}
	if (container->member > 0)
		tell_kernel(container);
	return container->member < 0 ? -1 : 0;
}

static int check_sources(const struct pyxis_request *request, struct jail_error *err)
{
	for (size_t i = 0; i < request->sources.n; i++)
		if (!path_exists(request->sources.items[i]) && errno == ENOENT)
			return jail_fail(err, NULL, 0, "--container-mounts: source path does not exist: %s", request->sources.items[i]);
		else if (!path_exists(request->sources.items[i]))
			return jail_fail(err, NULL, 0, "--container-mounts: source path cannot be reached: %s: %s",
					 request->sources.items[i], strerrordesc_np(errno));
	return 0;
}

static int refuse(const struct pyxis_container *container, const char *root, bool there, struct jail_error *err)
{
	const struct pyxis_request *request = container->request;

	if (request->name && request->name_flag == PYXIS_EXEC)
		return jail_fail(err, NULL, 0, "\"exec\" was passed to --container-name, but the container \"%s\" is not running on this "
				 "node", request->name);
	if (request->name && request->name_flag == PYXIS_CREATE && there)
		return jail_fail(err, NULL, 0, "\"create\" was passed to --container-name, but the container \"%s\" exists already: %s",
				 request->name, root);
	if (!there && !request->image)
		return jail_fail(err, NULL, 0, "there is no container \"%s\" on this node yet: give --container-image, too",
				 request->name);
	return 0;
}

/* The container's root, there or made now. */
static int get(struct pyxis_container *container, const char *root, struct pyxis_image *image, struct jail_error *err)
{
	const struct pyxis_request *request = container->request;
	bool named = request->name, there = named && path_exists(root);
	scoped_name_lock lock = PYXIS_NAME_LOCK_NONE;

	if (named && !there && !refuse(container, root, false, err)) {
		if (pyxis_name_lock_take(&lock, root, err))
			return -1;
		/* Meanwhile somebody may have made it: another node for this step, or another job. */
		there = path_exists(root);
	}
	bool ours = there && pyxis_root_label_is_of(root, &container->owner);
	if (!ours && refuse(container, root, there, err))
		return -1;
	if (there) {
		image->what = text_copy(container->root, strlen(container->root));
		return 0;
	}
	int result = pyxis_image_prepare(container, root, image, err);
	if (!result && named)
		pyxis_root_label_write(root, &container->owner, NULL);
	return result;
}

static int make(struct pyxis_container *container, const char *root, char *const *job, struct jail_error *err)
{
	enum pyxis_switch asked = container->request->entrypoint;
	/* Held until it is mounted: what mounts it holds it from then on. */
	scoped_image image = PYXIS_IMAGE_NONE;

	if (check_sources(container->request, err))
		return -1;
	if (get(container, root, &image, err))
		return -1;
	bool entrypoint = asked == PYXIS_UNSET ? container->arguments->execute_entrypoint : asked == PYXIS_YES;
	return start(container, image.what, entrypoint, job, err);
}

/* Of a container that runs already. */
static int check_saving(const struct pyxis_container *container, const char *root, struct jail_error *err)
{
	const char *name = container->request->name;
	const struct pyxis_root_identity now = pyxis_root_of_path(root);

	if (!path_exists(root))
		return jail_fail(err, NULL, 0, "--container-save: the container \"%s\" runs from a mounted image, and has no root to "
				 "save; begin it with --container-name=NAME, or save it in the step that begins it", name);
	*container->begun = pyxis_root_of_process(container->member);
	if (!pyxis_root_is_same(container->begun, &now))
		return jail_fail(err, NULL, 0, "--container-save: the container \"%s\" that runs is not the one of that name in %s; end "
				 "it, or begin the other one with --container-name=%s:no_exec", name, container->leftovers.folder, name);
	return 0;
}

int pyxis_container_open(struct pyxis_container *container, char *const *job, struct jail_error *err)
{
	const struct pyxis_request *request = container->request;

	pyxis_save_prepare(container);
	container->log = pyxis_log_open(err);
	if (container->log < 0)
		return -1;
	container->name = request->name
		? pyxis_container_named(request->name, container->arguments->job_scope ? container->owner.job : 0)
		: pyxis_container_unnamed(container->owner.job, container->owner.step);
	/* Nodes may share the directory of containers; what goes with the step is each node's own. */
	container->root = request->name || container->nodes <= 1 ? text_copy(container->name, strlen(container->name))
			  : text_format("%s.%u", container->name, container->node);
	pyxis_runtime_environment(&container->environment, job, &container->owner, request, container->arguments);
	scoped_free char *root = find_root(container, err);
	if (!root)
		return -1;
	pyxis_leftovers_find(&container->leftovers, root, pyxis_container_cluster(container), container->owner.job);
	if (request->name && request->name_flag != PYXIS_NO_EXEC) {
		container->member = pyxis_running_container_find(container->name, root);
		container->joined = container->member;
	}
	if (!container->joined) {
		pyxis_pmix_places(job, &container->owner, container->remapped, &container->places);
		if (make(container, root, job, err))
			return -1;
		if (request->save)
			*container->begun = pyxis_root_of_process(container->member);
		return 0;
	}
	if (request->name_flag == PYXIS_CREATE)
		return refuse(container, root, true, err);
	if (pyxis_join_check(container, err)) {
		free(container->advice);
		container->advice = text_format("  next: leave the option out, or give %s another name%s", request->name,
						path_exists(root)
						? "; :no_exec behind this one begins a second container with its root" : "");
		return -1;
	}
	return request->save ? check_saving(container, root, err) : 0;
}

void pyxis_container_close(struct pyxis_container *container, struct pyxis_outcome outcome)
{
	char *remove[] = { (char *)(uintptr_t)"enroot", (char *)(uintptr_t)"remove", (char *)(uintptr_t)"--force",
			   container->root, NULL };
	char *const release[] = { (char *)(uintptr_t)container->arguments->importer, (char *)(uintptr_t)"release", NULL };
	struct jail_error err;

	if (container->request->save && outcome.complete)
		pyxis_save(container);
	scoped_free char *root = text_format("%s/%s", container->leftovers.folder, container->root);
	if (container->temporary && path_exists(root) && pyxis_container_run(container, remove, NULL, NULL, &err)) {
		pyxis_container_say(container, "failed to remove the step's container %s%s", container->root, "");
		pyxis_container_show_log(container);
	}
	if (container->asked && pyxis_container_run(container, release, NULL, NULL, &err)) {
		pyxis_container_say(container, "the importer could not release the image: %s%s", container->arguments->importer, "");
		pyxis_container_show_log(container);
	}
	pyxis_leftovers_drop(&container->leftovers, outcome.over);
	for (size_t i = 0; i < container->leftovers.roots.n; i++) {
		remove[3] = container->leftovers.roots.items[i];
		/* Another node may have removed it at the same time. */
		(void)pyxis_container_run(container, remove, NULL, NULL, &err);
	}
}
