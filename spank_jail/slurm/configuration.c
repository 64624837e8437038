/* SPDX-License-Identifier: Apache-2.0 */
/* Checks slurm.conf, and the PAM configuration of su, for settings that do not work with the jail.
 * plugin.c calls it. */
#define _GNU_SOURCE
#include "configuration.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <slurm/slurm.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>

#include "native/base/scoped.h"
#include "native/base/text.h"

/* Where Slurm has it. Workers of Cellblock's have a program there that enters the jail. */
#define SU "/bin/su"
#define PAM_OF_SU "/etc/pam.d/su-l"
#define MOST_BYTES (64 * 1024)

/* UsePAM makes slurmstepd open a PAM session inside the window, with whatever modules are configured. */
int jail_configuration_check(struct jail_error *err)
{
#ifdef CONF_FLAG_PAM
	const uint64_t flag = CONF_FLAG_PAM;
#else
	const uint64_t flag = CTL_CONF_PAM; /* its name up to Slurm 23 */
#endif
	const slurm_conf_t *configuration = dlsym(RTLD_DEFAULT, "slurm_conf");

	if (!configuration || !(configuration->conf_flags & flag))
		return 0;
	return jail_fail(err, NULL, 0, "UsePAM=1 in slurm.conf cannot be had together with the jail: slurmstepd would "
			 "open PAM sessions while it visits the jail; set UsePAM=0");
}

static bool has_module(const char *path, const char *name)
{
	scoped_free char *text = text_read(AT_FDCWD, path, MOST_BYTES, NULL, &(struct jail_error){ 0 });
	char *rest = text, *line;

	while (rest && (line = strsep(&rest, "\n"))) {
		line[strcspn(line, "#")] = 0;
		if (strstr(line, name))
			return true;
	}
	return false;
}

bool jail_configuration_su_is_outside(void)
{
	struct stat st;

	return !stat(SU, &st) && (st.st_mode & S_ISUID) && !has_module(PAM_OF_SU, "pam_jail.so");
}
