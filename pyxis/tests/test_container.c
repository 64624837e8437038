/* SPDX-License-Identifier: Apache-2.0 */
/* Tests what the user is told when a container cannot be had, and how the import is called. enroot
 * itself is not needed. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "native/base/text.h"
#include "native/base/scoped.h"
#include "native/testing/check.h"
#include "pyxis/step/container.h"
#include "pyxis/step/container_run.h"

static char folder[] = "/tmp/pyxis-test-XXXXXX";
static char said[65536];

static void say(const char *line)
{
	size_t used = strlen(said);

	snprintf(said + used, sizeof(said) - used, "pyxis: %s\n", line);
}

static void write_file(const char *name, const char *text, mode_t mode)
{
	scoped_free char *path = text_format("%s/%s", folder, name);
	scoped_fd fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);

	CHECK(fd >= 0 && !text_write(fd, text, strlen(text)));
}

static char *calls(void)
{
	struct jail_error err;
	scoped_free char *path = text_format("%s/calls", folder);
	char *text = text_read(AT_FDCWD, path, 65536, NULL, &err);

	(void)unlink(path);
	return text ? text : text_copy("", 0);
}

/* An attempt, and what comes after it; it fails. `err` becomes the first line. */
static void attempt(const char *image, const char *importer, uint32_t node, struct jail_error *err)
{
	const struct pyxis_arguments arguments = { .runtime_path = "/run/pyxis", .importer = importer,
						   .image_mount = PYXIS_MOUNT_FUSE };
	scoped_free char *home = text_format("HOME=%s", folder);
	char *job[] = { home, NULL };
	scoped_request request = { 0 };
	int life[2];

	said[0] = '\0';
	CHECK(!pyxis_request_take(&request, PYXIS_IMAGE, image, err) && !pipe2(life, O_CLOEXEC));
	struct pyxis_container container = { .request = &request, .arguments = &arguments, .owner = { 7, 0, getuid(), getgid() },
					     .node = node, .nodes = 1, .life = life[0], .say = say, .log = -1 };
	CHECK(pyxis_container_open(&container, job, err));
	pyxis_container_explain(&container);
	pyxis_container_close(&container, (struct pyxis_outcome){ false, 0 });
	pyxis_leftovers_free(&container.leftovers);
	close(life[0]);
	close(life[1]);
	close(container.log);
	free(container.name);
	free(container.root);
	free(container.advice);
	variables_free(&container.environment);
}

static void check_importer(const char *program)
{
	struct jail_error err;

	write_file("importer", "#!/bin/sh\necho \"$# $*\" >> \"$HOME/calls\"\n"
			       "if [ $1 = get ]; then echo /no/image.sqsh; echo more; fi\n", 0755);
	attempt("team/image:1", program, 0, &err);
	scoped_free char *called = calls();
	CHECK(!strcmp(called, "2 get docker://team/image:1\n1 release\n"));
	CHECK_HAS(err.message, "container start failed");
	CHECK_HAS(said, "pyxis: importing docker image: team/image:1\npyxis: imported docker image: team/image:1\n");
	CHECK_HAS(said, "pyxis: enroot: No such file or directory");
	CHECK_HAS(said, "pyxis: printing enroot log file:\npyxis:     [ERROR] enroot:");

	write_file("importer", "#!/bin/sh\necho \"$# $*\" >> \"$HOME/calls\"; echo no access >&2; exit 5\n", 0755);
	attempt("team/image:1", program, 0, &err);
	scoped_free char *failed = calls();
	CHECK(!strcmp(failed, "2 get docker://team/image:1\n1 release\n"));
	CHECK(!strcmp(err.message, "failed to import docker image: team/image:1"));
	CHECK_HAS(said, "pyxis: the importer ended with status 5: ");
	CHECK_HAS(said, "pyxis: printing importer log file:\npyxis:     no access\n");
	CHECK(!strstr(said, "imported docker image"));

	write_file("importer", "#!/bin/sh\nif [ $1 = get ]; then echo image.sqsh; fi\n", 0755);
	attempt("team/image:1", program, 0, &err);
	CHECK(!strcmp(err.message, "failed to import docker image: team/image:1"));
	CHECK_HAS(said, "no absolute path: \"image.sqsh\"");
}

static void check_enroot(void)
{
	struct jail_error err;

	attempt("team/image:1", NULL, 0, &err);
	CHECK(!strcmp(err.message, "failed to import docker image: team/image:1"));
	CHECK_HAS(said, "pyxis: importing docker image: team/image:1\npyxis: enroot: No such file or directory");
	CHECK_HAS(said, "pyxis: printing enroot log file:\npyxis:     [ERROR] enroot:");
	CHECK(!strstr(said, "say --container-image"));
	/* Once a step: another node says nothing of what goes well. */
	attempt("team/image:1", NULL, 1, &err);
	CHECK(!strstr(said, "importing"));

	write_file("x.sqsh", "", 0644);
	attempt("x.sqsh", NULL, 0, &err);
	CHECK(!strcmp(err.message, "failed to import docker image: x.sqsh"));
	CHECK_HAS(said, "say --container-image=./x.sqsh\n");

	attempt("./none.sqsh", NULL, 0, &err);
	CHECK_HAS(err.message, "there is no file ./none.sqsh on this node");
	CHECK_HAS(said, "pyxis:   next: it was looked for in the job's directory there, ");
}

/* A program is given what is handed to it, and nothing else that happens to be open. */
static void check_handed(const struct variables *environment)
{
	struct jail_error err;
	scoped_fd inherited = open("/dev/null", O_RDONLY), other = open("/dev/null", O_RDONLY);
	scoped_free char *script = text_format("test -e /proc/self/fd/%d && ! test -e /proc/self/fd/%d", inherited, other);
	char *const look[] = { (char *)"/bin/sh", (char *)"-c", script, NULL };

	CHECK(inherited > 2 && other > 2 && !pyxis_runtime_run(look, environment, STDERR_FILENO, inherited, NULL, NULL, &err));
	CHECK(pyxis_runtime_run(look, environment, STDERR_FILENO, 0, NULL, NULL, &err) == 1);
}

int main(void)
{
	char *const clean[] = { (char *)"/bin/rm", (char *)"-rf", folder, NULL };
	const struct variables environment = { { (char *[]){ NULL }, 0, 0 } };
	struct jail_error err;

	CHECK(mkdtemp(folder) && !chdir(folder) && !setenv("PATH", folder, 1));
	scoped_free char *program = text_format("%s/importer", folder);
	check_importer(program);
	check_enroot();
	check_handed(&environment);
	CHECK(!chdir("/") && !pyxis_runtime_run(clean, &environment, STDERR_FILENO, 0, NULL, NULL, &err));
	return check_result("container");
}
