/* SPDX-License-Identifier: Apache-2.0 */
/* Gets the image of a step's container: finds the file, or imports it, in the form that `enroot start` takes.
 * container.c and pyxis/slurm call it. */
#define _GNU_SOURCE
#include "image.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "native/base/scoped.h"
#include "container_run.h"
#include "image_descriptor.h"
#include "root_label.h"
#include "program_log.h"
#include "shared_memory.h"
#include "disk_space.h"

bool pyxis_image_is_unpacked(const struct pyxis_arguments *arguments)
{
	/* What the kernel does not mount, squashfuse does. */
	bool either = arguments->image_mount == PYXIS_MOUNT_AUTO || arguments->image_mount == PYXIS_MOUNT_KERNEL;

	return arguments->image_mount == PYXIS_MOUNT_UNPACK || (either && access("/dev/fuse", R_OK | W_OK));
}

static bool must_be_kept(const struct pyxis_container *container)
{
	const struct pyxis_request *request = container->request;

	return request->name || request->save || pyxis_image_is_unpacked(container->arguments);
}

bool pyxis_image_is_mounted_alone(const struct pyxis_container *container)
{
	const char *image = container->request->image;

	return image && pyxis_image_is_path(image) && !must_be_kept(container);
}

static void note_import(struct pyxis_container *container, enum pyxis_import_result result, int file)
{
	struct stat st;

	if (container->imported)
		*container->imported = (struct pyxis_import){ result, file >= 0 && !fstat(file, &st) ? (uint64_t)st.st_size : 0 };
}

static void advise(struct pyxis_container *container, char *advice)
{
	free(container->advice);
	container->advice = advice;
}

/* What a signal did is in no log. */
static void advise_after(struct pyxis_container *container, int status, const char *root, unsigned long long needed)
{
	const char *slash = strrchr(root, '/');
	scoped_free char *folder = text_copy(root, (size_t)(slash - root));
	scoped_free char *said = pyxis_log_text(container->log, 0, NULL);

	if (status == 128 + SIGKILL)
		advise(container, text_format("enroot was killed; if the job's limit of memory did that, give it more with --mem"));
	else if (said)
		advise(container, pyxis_disk_space_advice(said, folder, needed));
}

/* A name that would be a file's with "./" before it. */
static int import_failed(struct pyxis_container *container, const char *title, int status, const char *root,
			 struct jail_error *err)
{
	struct stat st;

	note_import(container, PYXIS_IMAGE_FAILED, -1);
	advise_after(container, status, root, 0);
	if (!stat(title, &st) && S_ISREG(st.st_mode))
		advise(container, text_format("there is a file of this name here; a name is a registry's unless it begins with . or "
					      "/: say --container-image=./%s", title));
	return jail_fail(err, NULL, 0, "failed to import docker image: %s", title);
}

/* Between the messages of an import, which one node of the step tells. */
static int import_by(struct pyxis_container *container, char *const *arguments, struct text_buffer *output,
		     struct jail_error *err)
{
	const char *title = pyxis_image_title(container->request->image);
	/* What has a name is imported by one node, whichever was first; else each has its own to tell, and the first does. */
	scoped_free char *progress = container->node && !container->request->name ? NULL
				     : text_format("importing docker image: %s", title);

	if (progress && !container->node)
		container->say(progress);
	return pyxis_container_run(container, arguments, output, progress, err);
}

static void say_imported(const struct pyxis_container *container)
{
	if (!container->node)
		pyxis_container_say(container, "imported docker image: %s%s", pyxis_image_title(container->request->image), "");
}

/* enroot's import: the cache's own file, or where there is none one beside the containers, which goes as soon as it is mounted or
 * unpacked. */
static int import(struct pyxis_container *container, const char *root, struct pyxis_image *image, struct jail_error *err)
{
	const char *uri = container->request->image, *slash = strrchr(root, '/');
	char host[65] = "";

	gethostname(host, sizeof(host) - 1);
	scoped_image_descriptor descriptor = PYXIS_IMAGE_DESCRIPTOR_NONE;
	if (pyxis_image_descriptor_begin(&descriptor, err))
		return -1;
	image->what = text_format("%.*s/.pyxis_%u.%u_%s@%s.sqsh", (int)(slash - root), root, container->owner.job,
				  container->owner.step, host, pyxis_container_cluster(container));
	image->passing = true;
	scoped_free char *socket = text_format("%d", descriptor.theirs);
	char *const arguments[] = { (char *)(uintptr_t)"enroot", (char *)(uintptr_t)"import", (char *)(uintptr_t)"--output", image->what,
				    (char *)(uintptr_t)"--descriptor", socket, (char *)(uintptr_t)uri, NULL };
	(void)unlink(image->what);
	container->inherited = descriptor.theirs;
	int status = import_by(container, arguments, NULL, err);
	container->inherited = 0;
	if (status)
		return status < 0 ? -1 : import_failed(container, pyxis_image_title(uri), status, root, err);
	say_imported(container);
	bool found;
	char *cached = pyxis_image_descriptor_receive(&descriptor, &image->held, &found);
	scoped_fd made = cached ? -1 : open(image->what, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	note_import(container, found ? PYXIS_IMAGE_CACHED : PYXIS_IMAGE_FETCHED, cached ? image->held : made);
	if (cached) {
		free(image->what);
		image->what = cached;
		image->passing = false;
	}
	return 0;
}

/* importer=PROGRAM: `get URI` prints the path of a squashfs file that is its own to keep. */
static char *ask_importer(struct pyxis_container *container, struct jail_error *err)
{
	const char *program = container->arguments->importer, *uri = container->request->image;
	char *const arguments[] = { (char *)(uintptr_t)program, (char *)(uintptr_t)"get", (char *)(uintptr_t)uri, NULL };
	scoped_buffer output = { 0 };
	int status = import_by(container, arguments, &output, err);

	if (status < 0)
		return NULL;
	size_t length = output.text ? strcspn(output.text, "\n") : 0;
	if (!status && length && output.text[0] == '/') {
		say_imported(container);
		note_import(container, PYXIS_IMAGE_FETCHED, -1);
		return text_copy(output.text, length);
	}
	note_import(container, PYXIS_IMAGE_FAILED, -1);
	jail_fail(err, NULL, 0, "failed to import docker image: %s", pyxis_image_title(uri));
	if (status)
		advise(container, text_format("the importer ended with status %d: %s get %s", status, program, uri));
	else
		advise(container, text_format("the first line that \"%s get %s\" printed is no absolute path: \"%.*s\"", program, uri,
					      (int)length, output.text ? output.text : ""));
	return NULL;
}

static int unpack(struct pyxis_container *container, const char *file, const char *root, struct jail_error *err)
{
	char *const arguments[] = { (char *)(uintptr_t)"enroot", (char *)(uintptr_t)"create", (char *)(uintptr_t)"--name",
				    container->root, (char *)(uintptr_t)file, NULL };
	struct stat st;
	int status = pyxis_container_run(container, arguments, NULL, NULL, err);

	if (status <= 0)
		return status;
	advise_after(container, status, root, stat(file, &st) ? 0 : (unsigned long long)st.st_size);
	return jail_fail(err, NULL, 0, "failed to create container filesystem from %s", pyxis_image_title(container->request->image));
}

static int load(struct pyxis_container *container, const char *root, struct jail_error *err)
{
	const char *uri = container->request->image;
	char *const arguments[] = { (char *)(uintptr_t)"enroot", (char *)(uintptr_t)"load", (char *)(uintptr_t)"--name",
				    container->root, (char *)(uintptr_t)uri, NULL };
	int status = import_by(container, arguments, NULL, err);

	if (status > 0)
		return import_failed(container, pyxis_image_title(uri), status, root, err);
	if (!status) {
		say_imported(container);
		note_import(container, PYXIS_IMAGE_FETCHED, -1);
	}
	return status;
}

/* What the name meant, where it is not there. */
static int check_file(struct pyxis_container *container, const char *file, struct jail_error *err)
{
	scoped_free char *directory = getcwd(NULL, 0);

	if (!access(file, R_OK))
		return 0;
	int number = errno;
	if (number == ENOENT && file[0] == '/')
		advise(container, text_format("  next: look for it where the job runs: srun ls -l %s", file));
	else if (number == ENOENT)
		advise(container, text_format("  next: it was looked for in the job's directory there, %s: give --chdir, or the whole path; a "
					      "name that begins with neither . nor / is an image's in a registry", directory ? directory : "?"));
	else
		advise(container, text_format("  next: have its owner allow it (chmod), and the directories above it: srun ls -l %s", file));
	if (number == ENOENT)
		return jail_fail(err, NULL, 0, "--container-image: there is no file %s on this node", file);
	return jail_fail(err, NULL, 0, "--container-image: %s cannot be read: %s", file, strerrordesc_np(number));
}

static int get_image(struct pyxis_container *container, const char *root, struct pyxis_image *image, struct jail_error *err)
{
	const char *asked = container->request->image;

	if (!pyxis_image_is_path(asked) && !container->arguments->importer)
		return import(container, root, image, err);
	image->what = pyxis_image_is_path(asked) ? text_copy(asked, strlen(asked)) : ask_importer(container, err);
	return image->what ? 0 : -1;
}

int pyxis_image_prepare(struct pyxis_container *container, const char *root, struct pyxis_image *image, struct jail_error *err)
{
	const struct pyxis_request *request = container->request;
	bool path = pyxis_image_is_path(request->image);
	bool loaded = !path && container->arguments->use_enroot_load && !container->arguments->importer;

	if (path && check_file(container, request->image, err))
		return -1;
	if (loaded || must_be_kept(container))
		container->temporary = !request->name;
	container->asked = !path && container->arguments->importer;
	/* Whoever is killed from here on, there is something to clear away. */
	if (pyxis_container_keep(container, err))
		return -1;
	int failed = loaded ? load(container, root, err) : get_image(container, root, image, err);
	if (!failed && !loaded && must_be_kept(container))
		failed = unpack(container, image->what, root, err);
	if (failed)
		return -1;
	if (loaded || must_be_kept(container)) {
		if (container->temporary)
			pyxis_root_label_write(root, &container->owner, pyxis_container_cluster(container));
		pyxis_image_done(image);
		image->what = text_copy(container->root, strlen(container->root));
	}
	return 0;
}

void pyxis_image_done(struct pyxis_image *image)
{
	if (image->passing)
		(void)unlink(image->what);
	jail_close(&image->held);
	free(image->what);
	*image = (struct pyxis_image)PYXIS_IMAGE_NONE;
}
