/* SPDX-License-Identifier: Apache-2.0 */
/* A SPANK plugin that does what a site's own may do by mistake. By hand of spank.h's stable names: no header is
 * needed. Compiled with -DPLUGIN_VERSION, which Slurm compares, and -DPLANT or -DFORK. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

const char plugin_name[] = "planted", plugin_type[] = "spank";
const unsigned int plugin_version = PLUGIN_VERSION, spank_plugin_version = 1;

struct spank_handle;
extern int spank_remote(struct spank_handle *spank);

#ifdef PLANT
/* Leaves the node's root open, and not close-on-exec. */
int slurm_spank_init(struct spank_handle *spank, int ac, char **av)
{
	(void)ac;
	(void)av;
	return spank_remote(spank) == 1 && open("/", O_RDONLY | O_DIRECTORY) < 0 ? -1 : 0;
}
#endif

#ifdef FORK
/* As Slurm's own thread that starts UnkillableStepProgram. */
static void *start_program(void *unused)
{
	pid_t pid = fork();

	if (!pid) {
		execl(PROGRAM, PROGRAM, (char *)0);
		_exit(127);
	}
	waitpid(pid, 0, 0);
	return unused;
}

static int in_thread(struct spank_handle *spank)
{
	pthread_t thread;

	if (spank_remote(spank) != 1 || pthread_create(&thread, 0, start_program, 0))
		return 0;
	pthread_join(thread, 0);
	return 0;
}

/* While slurmstepd is in the window. */
int slurm_spank_init_post_opt(struct spank_handle *spank, int ac, char **av)
{
	(void)ac;
	(void)av;
	return in_thread(spank);
}

/* And once the tasks are there. */
int slurm_spank_task_post_fork(struct spank_handle *spank, int ac, char **av)
{
	(void)ac;
	(void)av;
	return in_thread(spank);
}
#endif
