/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that a running container is found by its holder, the process that keeps its namespaces, and that another
 * user's set-user-ID program of that name is not taken for one. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "native/base/scoped.h"
#include "native/base/text.h"
#include "native/testing/check.h"
#include "pyxis/step/running_containers.h"

#define HOLDER "/proc/self/fd/600"
#define NAME "pyxis_of_the_test"
#define NOBODY 65534

/* Runs `program` as enroot-hold is run; it says "y" when it is there. */
static pid_t hold(const char *program, uid_t user, int ready)
{
	scoped_free char *number = text_format("%d", ready);
	char *const words[] = { (char *)(uintptr_t)HOLDER, number, (char *)(uintptr_t)"601", (char *)(uintptr_t)NAME, NULL };
	pid_t pid = fork();

	if (pid)
		return pid;
	if (!user || !setresuid(user, user, user))
		execv(program, words);
	_exit(1);
}

static pid_t found_while_held(const char *program, uid_t user, pid_t *holder)
{
	int ends[2];
	char byte = 0;

	CHECK(!pipe(ends));
	*holder = hold(program, user, ends[1]);
	close(ends[1]);
	CHECK(read(ends[0], &byte, 1) == 1 && byte == 'y');
	pid_t found = pyxis_running_container_find(NAME, NULL);
	CHECK(!kill(*holder, SIGKILL) && waitpid(*holder, NULL, 0) == *holder);
	close(ends[0]);
	return found;
}

static void copy_self(const char *path)
{
	scoped_fd from = open("/proc/self/exe", O_RDONLY | O_CLOEXEC), to = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0700);
	struct stat st;

	CHECK(!fstat(from, &st));
	for (off_t left = st.st_size; left > 0;) {
		ssize_t sent = sendfile(to, from, NULL, (size_t)left);
		CHECK(sent > 0);
		if (sent <= 0)
			return;
		left -= sent;
	}
}

int main(int argc, char **argv)
{
	char folder[] = "/var/tmp/pyxis-running-XXXXXX";
	pid_t holder;

	if (argc == 4 && !strcmp(argv[0], HOLDER)) {
		if (write(atoi(argv[1]), "y", 1) == 1)
			pause();
		return 1;
	}
	CHECK(mkdtemp(folder) && !chmod(folder, 0755));
	scoped_free char *program = text_format("%s/program", folder);
	copy_self(program);
	CHECK(!pyxis_running_container_find(NAME, NULL));
	CHECK(found_while_held(program, 0, &holder) == holder);
	/* Another user's process becomes root's alone by a program of root's. */
	if (!geteuid()) {
		CHECK(!chmod(program, 04755));
		CHECK(!found_while_held(program, NOBODY, &holder));
	}
	CHECK(!unlink(program) && !rmdir(folder));
	return check_result("running_containers");
}
