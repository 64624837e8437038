/* SPDX-License-Identifier: Apache-2.0 */
/* Exports an image from Docker's daemon or from podman, with the programs docker and podman.
 * local_image.c calls it. */
#define _GNU_SOURCE
#include "daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "native/base/scoped.h"
#include "native/base/program.h"

char *daemon_image_name(const char *image)
{
	const char *slash = strrchr(image, '/'), *base = slash ? slash + 1 : image, *tag = strchr(base, ':');

	if (text_starts(image, "library/"))
		image += strlen("library/");
	char *name = text_format("%s%s", image, tag || strchr(base, '@') ? "" : "+latest");
	for (char *c = name; *c; c++)
		if (*c == '/' || *c == ':' || *c == '@')
			*c = '+';
	return name;
}

/* Runs the program with its output into a pipe; gives the end to read, and its process. */
static int start(char *const *arguments, pid_t *child, struct jail_error *err)
{
	int ends[2];
	pid_t parent = getpid();

	if (pipe2(ends, O_CLOEXEC))
		return jail_fail(err, "pipe2", errno, "cannot talk to another program");
	*child = fork();
	if (*child < 0) {
		close(ends[0]);
		close(ends[1]);
		return jail_fail(err, "fork", errno, "cannot run %s", arguments[0]);
	}
	if (!*child) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent || dup2(ends[1], STDOUT_FILENO) < 0)
			_exit(126);
		execv(arguments[0], arguments);
		_exit(127);
	}
	close(ends[1]);
	return ends[0];
}

struct image_files *daemon_save(const char *uri, const struct settings *settings, struct jail_error *err)
{
	bool docker = text_starts(uri, "dockerd://");
	const char *image = strstr(uri, "://") + strlen("://"), *name = docker ? "docker" : "podman";
	scoped_free char *program = program_find(name);
	scoped_list arguments = { 0 };
	struct image_files *files;
	int fd, status = 0;
	pid_t child = -1;

	if (!program || !*image || *image == '-') {
		jail_fail(err, NULL, 0, program ? "no image is named" : "the program %s is not installed: it gives the image", name);
		jail_error_at(err, NULL, 0, uri);
		return NULL;
	}
	text_list_add(&arguments, program);
	text_list_add(&arguments, "save");
	if (!docker)
		text_list_add(&arguments, "--format=docker-archive");
	text_list_add(&arguments, image);
	fd = start(arguments.items, &child, err);
	if (fd < 0)
		return NULL;
	files = image_files_open_stream(fd, uri, settings, err);
	while (waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
	if (!status)
		return files;
	image_files_close(files);
	jail_fail(err, NULL, 0, "\"%s save\" ended with status %d (its message is above)", name,
		  WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
	jail_error_at(err, NULL, 0, uri);
	return NULL;
}
