/* SPDX-License-Identifier: Apache-2.0 */
/* Adds the user and the user's group to the container's /etc/passwd and /etc/group. container/hooks.c calls it. */
#define _GNU_SOURCE
#include <grp.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>

#include "native/base/scoped.h"
#include "accounts.h"
#include "hook.h"

static const char *shell(const struct container *container)
{
	if (container->shell && hook_there(container, container->shell))
		return container->shell;
	return hook_there(container, "/bin/bash") ? "/bin/bash" : "/bin/sh";
}

static int write_passwd(struct container *container, struct jail_error *err)
{
	scoped_free char *now = hook_read(container, "/etc/passwd");
	scoped_list first = { 0 };
	scoped_buffer text = { 0 };

	accounts_add_known(&first, now, "root", "root:x:0:0:root:/root:/bin/sh");
	accounts_add_known(&first, now, "nobody", "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin");
	if (container->uid)
		text_list_take(&first, text_format("%s:x:%u:%u::%s:%s", container->user, (unsigned)container->uid,
						   (unsigned)container->gid, container->home, shell(container)));
	accounts_merge(&text, &first, now);
	return hook_write(container, "/etc", "passwd", text.text, 0644, err);
}

static int write_group(struct container *container, struct jail_error *err)
{
	scoped_free char *now = hook_read(container, "/etc/group");
	const struct group *own = getgrgid(container->gid);
	scoped_list first = { 0 };
	scoped_buffer text = { 0 };

	accounts_add_known(&first, now, "root", "root:x:0:");
	/* Debian's name for it; others call it nobody. */
	accounts_add_known(&first, now, "nogroup", "nogroup:x:65534:");
	if (container->gid)
		text_list_take(&first, text_format("%s:x:%u:", own ? own->gr_name : container->user,
						   (unsigned)container->gid));
	accounts_merge(&text, &first, now);
	return hook_write(container, "/etc", "group", text.text, 0644, err);
}

/* A user whose password is "x" in passwd and who has no line here is unknown to PAM, and so to an sshd in the container.
 * None can log in with a password by it ("*"), and no password ends. */
static int write_shadow(struct container *container, struct jail_error *err)
{
	scoped_free char *now = hook_read(container, "/etc/shadow");
	scoped_list first = { 0 };
	scoped_buffer text = { 0 };

	/* An image without it has no PAM that would ask. */
	if (!hook_there(container, "/etc/shadow"))
		return 0;
	accounts_add_known(&first, now, "root", "root:*::0:99999:7:::");
	if (container->uid) {
		scoped_free char *own = text_format("%s:*::0:99999:7:::", container->user);
		accounts_add_known(&first, now, container->user, own);
	}
	accounts_merge(&text, &first, now);
	return hook_write(container, "/etc", "shadow", text.text, 0640, err);
}

int hook_shadow(struct container *container, struct jail_error *err)
{
	return write_passwd(container, err) || write_group(container, err) || write_shadow(container, err) ? -1 : 0;
}
