/* SPDX-License-Identifier: Apache-2.0 */
/* A SPANK plugin of Slurm 24.11 for which batch scripts wait before plugins after it are called, as on a node that is busy.
 * test_existing_cluster.py calls it. Without Slurm's headers, which the machine of the tests does not have. */
#include <stdint.h>
#include <unistd.h>

#define BATCH_SCRIPT 0xfffffffb /* slurm.h: SLURM_BATCH_SCRIPT */
#define S_JOB_STEPID 3		/* spank.h */
#define SECONDS 6

extern const char plugin_name[], plugin_type[];
extern const unsigned plugin_version, spank_plugin_version;
const char plugin_name[] = "slow", plugin_type[] = "spank";
const unsigned plugin_version = 0x180b00, spank_plugin_version = 1;

int spank_remote(void *spank);
int spank_get_item(void *spank, int item, ...);
int slurm_spank_init_post_opt(void *spank, int count, char **arguments);

int slurm_spank_init_post_opt(void *spank, int count, char **arguments)
{
	uint32_t step = 0;

	(void)count;
	(void)arguments;
	if (spank_remote(spank) == 1 && !spank_get_item(spank, S_JOB_STEPID, &step) && step == BATCH_SCRIPT)
		sleep(SECONDS);
	return 0;
}
