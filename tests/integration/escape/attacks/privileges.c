/* SPDX-License-Identifier: Apache-2.0 */
/* What a file gives to who executes it: run inside, where it may, and outside, where it must not. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/capability.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "attack.h"

static void rights(void)
{
	struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct data[2];

	if (!geteuid())
		escaped("the effective uid is 0");
	if (syscall(SYS_capget, &header, data))
		broken("capget");
	if (data[0].effective || data[1].effective)
		escaped("capabilities %x are effective", data[0].effective);
	errno = 0;
	held("uid %d, without a capability", (int)geteuid());
}

const struct attack privilege_attacks[] = {
	{ "rights", rights },
	{ NULL, NULL },
};
