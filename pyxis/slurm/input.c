/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the container options and the environment variables of a job through Slurm's SPANK
 * functions. plugin.c calls it. */
#define _GNU_SOURCE
#include "input.h"

#include <slurm/slurm.h>
#include <stdlib.h>
#include <string.h>

#include "native/base/argument.h"
#include "native/base/scoped.h"
#include "log.h"

#define NONE PYXIS_N_OPTIONS

static int read_option(int option, const char *value, int remote);

#define OPTION(which, argument, text) \
	[which] = { NULL, (char *)(uintptr_t)(argument), (char *)(uintptr_t)(text), (argument) != NULL, which, read_option }

static struct spank_option table[PYXIS_N_OPTIONS] = {
	OPTION(PYXIS_IMAGE, "[USER@][REGISTRY#]IMAGE[:TAG]|PATH",
	       "[pyxis] the image of the container: in a registry, or a squashfs file on the node when it begins with . or /"),
	OPTION(PYXIS_MOUNTS, "SRC[:DST[:FLAGS]][,SRC:DST...]",
	       "[pyxis] bind mounts into the container; SRC may be tmpfs or umount, FLAGS are separated by +"),
	OPTION(PYXIS_WORKDIR, "PATH", "[pyxis] working directory in the container; by default the image's"),
	OPTION(PYXIS_NAME, "NAME[:auto|create|exec|no_exec]",
	       "[pyxis] a name by which the container is kept, used again, or joined while it runs"),
	OPTION(PYXIS_SAVE, "PATH", "[pyxis] save the container as a squashfs file when the last task has ended"),
	OPTION(PYXIS_MOUNT_HOME, NULL, "[pyxis] bind mount the user's home; by default enroot's settings decide"),
	OPTION(PYXIS_NO_MOUNT_HOME, NULL, "[pyxis] do not bind mount the user's home"),
	OPTION(PYXIS_REMAP_ROOT, NULL, "[pyxis] be root in the container; by default enroot's settings decide"),
	OPTION(PYXIS_NO_REMAP_ROOT, NULL, "[pyxis] do not be root in the container"),
	OPTION(PYXIS_ENTRYPOINT, NULL, "[pyxis] run the image's entrypoint"),
	OPTION(PYXIS_NO_ENTRYPOINT, NULL, "[pyxis] do not run the image's entrypoint"),
	OPTION(PYXIS_ENTRYPOINT_LOG, NULL, "[pyxis] print what the entrypoint prints"),
	OPTION(PYXIS_WRITABLE, NULL, "[pyxis] make the container's root writable"),
	OPTION(PYXIS_READONLY, NULL, "[pyxis] make the container's root read-only"),
	OPTION(PYXIS_ENV, "NAME[,NAME...]", "[pyxis] variables whose value here wins over the image's"),
	OPTION(PYXIS_UNSHARE, "NAMESPACE[,NAMESPACE...]", "[pyxis] namespaces of the container's own: net, ipc, uts"),
};

/* The option that says the opposite. */
static const unsigned char opposite[PYXIS_N_OPTIONS] = {
	[PYXIS_IMAGE] = NONE, [PYXIS_MOUNTS] = NONE, [PYXIS_WORKDIR] = NONE, [PYXIS_NAME] = NONE, [PYXIS_SAVE] = NONE,
	[PYXIS_MOUNT_HOME] = PYXIS_NO_MOUNT_HOME, [PYXIS_NO_MOUNT_HOME] = PYXIS_MOUNT_HOME,
	[PYXIS_REMAP_ROOT] = PYXIS_NO_REMAP_ROOT, [PYXIS_NO_REMAP_ROOT] = PYXIS_REMAP_ROOT,
	[PYXIS_ENTRYPOINT] = PYXIS_NO_ENTRYPOINT, [PYXIS_NO_ENTRYPOINT] = PYXIS_ENTRYPOINT, [PYXIS_ENTRYPOINT_LOG] = NONE,
	[PYXIS_WRITABLE] = PYXIS_READONLY, [PYXIS_READONLY] = PYXIS_WRITABLE, [PYXIS_ENV] = NONE, [PYXIS_UNSHARE] = NONE,
};

static char *values[PYXIS_N_OPTIONS]; /* as given; NULL: not given */
static bool seen[PYXIS_N_OPTIONS];
static bool of_job[PYXIS_N_OPTIONS]; /* given to the salloc or sbatch that this srun runs in */

/* The option as Slurm hands it from salloc and sbatch to what runs in their job; `prefix`: what tasks see before it. */
static const char *variable_of_job(char *const *environment, const char *prefix, int option)
{
	scoped_free char *name = text_format("%s_SLURM_SPANK_OPTION_pyxis_%s", prefix, pyxis_option_names[option]);

	for (char *c = name; *c; c++)
		if (*c == '-')
			*c = '_';
	return jail_value_in(environment, name);
}

/* Slurm has srun read the job's options first, as if they stood on its command line. */
static bool is_of_job(int option, const char *value)
{
	const char *found = variable_of_job(environ, "", option);

	return found && !seen[option] && !strcmp(table[option].has_arg ? found : "", value);
}

static void forget(int option)
{
	free(values[option]);
	values[option] = NULL;
	of_job[option] = false;
}

/* What the step says comes in the place of what its job said. */
static int check_twice(int option, const char *value, struct jail_error *err)
{
	int other = opposite[option];

	if (of_job[option])
		forget(option);
	if (other != NONE && of_job[other])
		forget(other);
	if (other != NONE && values[other])
		return jail_fail(err, NULL, 0, "--%s and --%s are both given", pyxis_option_names[other], pyxis_option_names[option]);
	if (values[option] && strcmp(values[option], value))
		return jail_fail(err, NULL, 0, "--%s is given twice, with different values: %s and %s", pyxis_option_names[option],
				 values[option], value);
	return 0;
}

/* Where a job is submitted, what is wrong is told now. On the node a failure would be logged and forgotten by Slurm:
 * the value is kept and read later. */
static int read_option(int option, const char *value, int remote)
{
	scoped_request alone = { 0 };
	struct jail_error err;

	if (option < 0 || option >= PYXIS_N_OPTIONS)
		return -1;
	if (!value || !table[option].has_arg)
		value = "";
	if (!remote && (pyxis_request_take(&alone, (enum pyxis_option)option, value, &err) || check_twice(option, value, &err)))
		return pyxis_log_error(&err);
	of_job[option] = !remote && is_of_job(option, value);
	seen[option] = true;
	free(values[option]);
	values[option] = strdup(value);
	return values[option] ? 0 : -1;
}

int pyxis_input_register(spank_t spank, struct jail_error *err)
{
	for (int option = 0; option < PYXIS_N_OPTIONS; option++) {
		table[option].name = (char *)(uintptr_t)pyxis_option_names[option];
		if (spank_option_register(spank, &table[option]))
			return jail_fail(err, NULL, 0, "Slurm does not take the option --%s", table[option].name);
	}
	return 0;
}

/* Of a job and its step that contradict each other Slurm sends both, in the order of the table. */
static void resolve(char *const *environment, int option)
{
	int other = opposite[option];

	if (other == NONE || !values[option] || !values[other])
		return;
	bool inherited = variable_of_job(environment, "", option) || variable_of_job(environment, "SLURM_SPANK_", option);
	forget(inherited ? option : other);
}

int pyxis_input_read(char *const *environment, struct pyxis_request *request, struct jail_error *err)
{
	for (int option = 0; option < PYXIS_N_OPTIONS; option++)
		resolve(environment, option);
	for (int option = 0; option < PYXIS_N_OPTIONS; option++) {
		bool given = values[option] || (opposite[option] != NONE && values[opposite[option]]);
		const char *name = pyxis_option_variables[option], *value;
		if (values[option] && pyxis_request_take(request, (enum pyxis_option)option, values[option], err))
			return -1;
		if (!given && name && (value = jail_value_in(environment, name)) &&
		    pyxis_request_take_variable(request, (enum pyxis_option)option, value, err))
			return -1;
	}
	return 0;
}
