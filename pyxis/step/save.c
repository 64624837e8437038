/* SPDX-License-Identifier: Apache-2.0 */
/* Makes an image of the container for --container-save, at the end of the step. container.c calls it. */
#define _GNU_SOURCE
#include "save.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "native/base/scoped.h"
#include "container_run.h"
#include "program_log.h"
#include "disk_space.h"

static char *absolute(const char *asked)
{
	scoped_free char *directory = asked[0] == '/' ? NULL : getcwd(NULL, 0);

	return directory ? text_format("%s/%s", directory, asked) : text_copy(asked, strlen(asked));
}

/* Opened, not only looked up: a network file system then asks its server. All zero: there is none. */
static struct stat look(const char *file)
{
	scoped_fd fd = open(file, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	struct stat st = { 0 };

	if (fd >= 0)
		(void)fstat(fd, &st);
	return st;
}

void pyxis_save_prepare(struct pyxis_container *container)
{
	if (container->request->save && container->node) {
		scoped_free char *file = absolute(container->request->save);
		container->saved = look(file);
	}
}

/* Says on the file which step saved it, where the file system takes such words. */
#define SIGNATURE "user.cellblock.saved"

static char *signature(const struct pyxis_container *container)
{
	return text_format("%u.%u %s", container->owner.job, container->owner.step, pyxis_container_cluster(container));
}

/* Another node has saved to this file: its step is said on it, or a new one took its place since this node began. A node
 * may begin when another has ended. */
static bool is_taken(const struct pyxis_container *container, const char *file)
{
	const struct stat now = look(file), *before = &container->saved;
	scoped_free char *own = signature(container);
	char said[256];
	ssize_t length = getxattr(file, SIGNATURE, said, sizeof(said));

	if (length > 0 && (size_t)length == strlen(own) && !memcmp(said, own, (size_t)length))
		return true;
	return now.st_dev != before->st_dev || now.st_ino != before->st_ino || now.st_ctim.tv_sec != before->st_ctim.tv_sec ||
	       now.st_ctim.tv_nsec != before->st_ctim.tv_nsec;
}

/* "DIR/FILE" as "DIR/.FILE.pyxis_JOB.STEP.NODE". */
static char *beside(const struct pyxis_container *container, const char *file)
{
	const char *base = strrchr(file, '/') + 1;

	return text_format("%.*s.%s.pyxis_%u.%u.%u", (int)(base - file), file, base, container->owner.job, container->owner.step,
			   container->node);
}

static int export(struct pyxis_container *container, char *file, struct jail_error *err)
{
	char *const arguments[] = { (char *)(uintptr_t)"enroot", (char *)(uintptr_t)"export", (char *)(uintptr_t)"--force",
				    (char *)(uintptr_t)"--output", file, container->root, NULL };

	return pyxis_container_run(container, arguments, NULL, NULL, err);
}

/* Of a node that is not alone: others save meanwhile. */
static int export_beside(struct pyxis_container *container, const char *file, struct jail_error *err)
{
	scoped_free char *own = beside(container, file), *words = signature(container);
	int status = export(container, own, err);

	if (!status)
		(void)setxattr(own, SIGNATURE, words, strlen(words), 0);
	if (!status && !(container->node && is_taken(container, file)) && rename(own, file))
		status = jail_fail(err, "rename", errno, "%s", file);
	(void)unlink(own);
	return status;
}

/* Whether the step ran in the container that has the name now. */
static bool is_the_steps(const struct pyxis_container *container)
{
	scoped_free char *path = text_format("%s/%s", container->leftovers.folder, container->root);
	const struct pyxis_root_identity now = pyxis_root_of_path(path);

	return pyxis_root_is_same(container->begun, &now);
}

void pyxis_save(struct pyxis_container *container)
{
	scoped_free char *file = absolute(container->request->save);
	struct jail_error err;
	char line[1400];

	if (container->node && is_taken(container, file))
		return;
	if (!is_the_steps(container)) {
		pyxis_container_say(container, "failed to export container %s to %s: it was removed while the step ran", container->name,
				    file);
		container->say("  next: let the step that saves it end before it is removed (enroot remove) or replaced (enroot create)");
		return;
	}
	int status = container->nodes > 1 ? export_beside(container, file, &err) : export(container, file, &err);
	if (!status) {
		pyxis_container_say(container, "exported container %s to %s", container->name, file);
		return;
	}
	pyxis_container_say(container, "failed to export container %s to %s", container->name, file);
	if (status < 0)
		container->say(jail_error_format(&err, line, sizeof(line)));
	scoped_free char *said = pyxis_log_text(container->log, 0, NULL);
	scoped_free char *folder = text_copy(file, (size_t)(strrchr(file, '/') - file) + 1);
	free(container->advice);
	container->advice = said ? pyxis_disk_space_advice(said, folder, 0) : NULL;
	pyxis_container_explain(container);
}
