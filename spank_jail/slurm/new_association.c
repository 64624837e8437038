/* SPDX-License-Identifier: Apache-2.0 */
/* Makes srun, sbatch and salloc wait until slurmctld knows a new user's association, his entry in the accounting.
 * plugin.c calls it in srun, sbatch and salloc.
 *
 * associate-users, sacctmgr, slurmdbd and MariaDB make it, which takes a second, and on a busy machine several.
 */
#define _GNU_SOURCE
#include "new_association.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <pwd.h>
#include <slurm/slurm.h>
#include <slurm/slurmdb.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#define TRIES 40
#define PAUSE_MS 250
/* So Slurm's read_config.h has it: AccountingStorageEnforce=associations. */
#define ENFORCE_ASSOCIATIONS 1

static bool asks_for_associations(void)
{
	const slurm_conf_t *configuration = dlsym(RTLD_DEFAULT, "slurm_conf");

	return configuration && configuration->accounting_storage_enforce & ENFORCE_ASSOCIATIONS;
}

/* Also when slurmctld does not say: it says why when it is asked for a job. */
static bool may_submit(uid_t user, char *name)
{
	assoc_mgr_info_request_msg_t request = { .flags = ASSOC_MGR_INFO_FLAG_ASSOC };
	assoc_mgr_info_msg_t *answer = NULL;
	bool found = false;

	request.user_list = slurm_list_create(NULL);
	slurm_list_append(request.user_list, name);
	int result = slurm_load_assoc_mgr_info(&request, &answer);
	slurm_list_destroy(request.user_list);
	if (result || !answer)
		return true;
	void *all = answer->assoc_list ? slurm_list_iterator_create(answer->assoc_list) : NULL;
	const slurmdb_assoc_rec_t *one;
	while (all && !found && (one = slurm_list_next(all)))
		found = one->uid == user;
	if (all)
		slurm_list_iterator_destroy(all);
	slurm_free_assoc_mgr_info_msg(answer);
	return found;
}

void jail_new_association_wait(void)
{
	const struct passwd *user = getpwuid(getuid());
	char name[LOGIN_NAME_MAX];

	/* Root has one from the start, and who is root in the jail is nobody to slurmctld. */
	if (!user || !user->pw_uid || !asks_for_associations())
		return;
	if (snprintf(name, sizeof(name), "%s", user->pw_name) >= (int)sizeof(name))
		return;
	for (int i = 0; i < TRIES && !may_submit(getuid(), name); i++) {
		struct timespec rest = { .tv_nsec = PAUSE_MS * 1000000L };

		while (nanosleep(&rest, &rest) && errno == EINTR)
			;
	}
}
