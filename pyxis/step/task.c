/* SPDX-License-Identifier: Apache-2.0 */
/* Moves a task of a step into its container, and sets the task's environment. pyxis/slurm calls it. */
#define _GNU_SOURCE
#include "task.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "native/container/join.h"
#include "native/base/argument.h"
#include "native/base/scoped.h"
#include "step_namespaces.h"

#define MAX_ENVIRONMENT (4 * 1024 * 1024)

ino_t pyxis_task_mounts(pid_t pid)
{
	scoped_free char *path = text_format("/proc/%d/ns/mnt", (int)pid);
	struct stat st;

	return stat(path, &st) ? 0 : st.st_ino;
}

static int read_environment(pid_t pid, struct variables *environment, struct jail_error *err)
{
	scoped_free char *path = text_format("/proc/%d/environ", (int)pid);
	size_t length;
	scoped_free char *text = text_read(AT_FDCWD, path, MAX_ENVIRONMENT, &length, err);

	if (!text)
		return -1;
	for (const char *pair = text; pair < text + length; pair += strlen(pair) + 1)
		if (*pair != '=' && strchr(pair, '='))
			text_list_add(&environment->list, pair);
	return 0;
}

static int enter_directory(const char *workdir, int own, struct jail_error *err)
{
	if (workdir && chdir(workdir))
		/* "PATH: No such file or directory": scripts look for it. */
		return jail_fail(err, NULL, 0, "--container-workdir: cannot enter this directory of the container: %s: %s", workdir,
				 strerrordesc_np(errno));
	/* One that cannot be entered is left for the root, where setns has put the task. */
	if (!workdir && own >= 0 && fchdir(own))
		return 0;
	return 0;
}

int pyxis_task_join(pid_t member, ino_t mounts, unsigned unshare, const struct pyxis_request *request,
		    struct variables *environment, struct jail_error *err)
{
	scoped_fd process = (int)syscall(SYS_pidfd_open, member, 0);

	if (process < 0)
		return jail_fail(err, "pidfd_open", errno, "the container has ended");
	/* From here on the number stays this process's as long as it lives, and setns fails when it does not. */
	if (pyxis_task_mounts(member) != mounts)
		return jail_fail(err, NULL, 0, "the container has ended");
	if (read_environment(member, environment, err))
		return -1;
	scoped_free char *path = text_format("/proc/%d/cwd", (int)member);
	scoped_fd directory = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	scoped_namespaces namespaces = PYXIS_NAMESPACES_NONE;
	int kinds = join_differing(member, err);
	if (kinds < 0 || pyxis_namespaces_note(&namespaces, unshare, err))
		return -1;
	/* A PID namespace would hold what a task forks, not the task. */
	kinds &= ~CLONE_NEWPID;
	if (join_enter(process, kinds, member, err) || pyxis_namespaces_check(&namespaces, err) ||
	    enter_directory(request->workdir, directory, err))
		return -1;
	return join_confine(kinds, err);
}

static bool is_listed(const struct pyxis_request *request, const char *pair, size_t length)
{
	for (size_t i = 0; i < request->environment.n; i++)
		if (strlen(request->environment.items[i]) == length && !strncmp(request->environment.items[i], pair, length))
			return true;
	return false;
}

/* What is of one task alone; a hook may have copied the first one's into the container. */
static bool is_per_task(const char *pair, size_t length)
{
	static const char *const names[] = { "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_TASK_PID", "SLURM_GTIDS",
					     "SLURM_CPU_BIND", "SLURM_CPU_BIND_LIST" };

	if (text_starts(pair, "PMIX_") || text_starts(pair, "PMI_"))
		return true;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (strlen(names[i]) == length && !strncmp(names[i], pair, length))
			return true;
	return false;
}

static void copy_rank(char *const *task, const struct pyxis_request *request, const char *from, const char *to,
		      struct text_list *changes)
{
	const char *value = jail_value_in(task, from);

	if (value && !is_listed(request, to, strlen(to)))
		text_list_take(changes, text_format("%s=%s", to, value));
}

void pyxis_task_environment(char *const *task, const struct variables *container, const struct pyxis_request *request,
			    struct text_list *changes)
{
	static const char *const languages[] = { "LANG", "LANGUAGE", "LC_ALL" };
	char directory[PATH_MAX];
	/* No image has it: a hook copied what the step had that began the container, and this may be another. */
	bool copied = variables_get(container, "SLURM_JOB_ID");

	for (size_t i = 0; i < sizeof(languages) / sizeof(languages[0]); i++)
		if (!is_listed(request, languages[i], strlen(languages[i])))
			text_list_add(changes, languages[i]);
	for (size_t i = 0; i < container->list.n; i++) {
		const char *pair = container->list.items[i];
		size_t length = strcspn(pair, "=");
		scoped_free char *name = text_copy(pair, length);
		bool known = jail_value_in(task, name);
		bool of_step = copied && text_starts(pair, "SLURM_");
		/* "dumb" is what enroot sets where nobody knows better; srun knows the terminal. */
		bool better = known && !strcmp(pair, "TERM=dumb");
		if (better || (known && (of_step || is_listed(request, pair, length) || is_per_task(pair, length))))
			continue;
		text_list_add(changes, pair);
	}
	if (getcwd(directory, sizeof(directory)) && directory[0] == '/')
		text_list_take(changes, text_format("PWD=%s", directory));
	text_list_add(changes, "OLDPWD");
	/* torch.distributed finds its place by them. Images of it set the version, and so may a job. */
	if (variables_get(container, "PYTORCH_VERSION") || jail_value_in(task, "PYTORCH_VERSION")) {
		copy_rank(task, request, "SLURM_PROCID", "RANK", changes);
		copy_rank(task, request, "SLURM_LOCALID", "LOCAL_RANK", changes);
	}
}
