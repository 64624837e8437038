/* SPDX-License-Identifier: Apache-2.0 */
/* Tests, with a made-up /proc, that the setting that refuses namespaces is recognised and named. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "native/base/scoped.h"
#include "native/testing/check.h"
#include "native/container/refusal.h"
#include "native/base/text.h"

static char folder[] = "/tmp/test_refusal.XXXXXX";

static void write_file(const char *name, const char *text)
{
	scoped_free char *path = text_format("%s/%s", folder, name);
	scoped_fd fd = -1;

	for (char *slash = path + strlen(folder) + 1; (slash = strchr(slash, '/')); slash++) {
		*slash = '\0';
		mkdir(path, 0700);
		*slash = '/';
	}
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	CHECK(fd >= 0 && !text_write(fd, text, strlen(text)));
}

static void check_names(int number, const char *part)
{
	struct jail_error err;

	CHECK(refusal_explain("unshare", number, folder, &err) == -1);
	CHECK(err.number == number);
	CHECK_HAS(err.message, part);
}

int main(void)
{
	static const struct { const char *file, *bad, *good; int number; const char *part; } cases[] = {
		{ "sys/user/max_user_namespaces", "0\n", "1000\n", ENOSPC, "user.max_user_namespaces = 0" },
		{ "sys/user/max_mnt_namespaces", "0\n", "1000\n", ENOSPC, "user.max_mnt_namespaces = 0" },
		{ "sys/kernel/unprivileged_userns_clone", "0\n", "1\n", EPERM, "kernel.unprivileged_userns_clone = 0" },
		{ "sys/kernel/apparmor_restrict_unprivileged_userns", "1\n", "0\n", EPERM, "AppArmor keeps" },
		{ "self/attr/apparmor/current", "docker-default (enforce)\n", "unconfined\n", EPERM, "docker-default" },
		{ "self/status", "Name:\tx\nSeccomp:\t2\n", "Name:\tx\nSeccomp:\t0\n", EPERM, "seccomp" },
	};

	CHECK(mkdtemp(folder) != NULL);
	check_names(EPERM, "chroot");
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		write_file(cases[i].file, cases[i].bad);
		check_names(cases[i].number, cases[i].part);
		write_file(cases[i].file, cases[i].good);
	}
	check_names(ENOSPC, "user.max_user_namespaces (1000)");
	write_file("sys/user/max_net_namespaces", "7\n");
	check_names(ENOSPC, "user.max_net_namespaces (7)");
	write_file("sys/user/max_net_namespaces", "2147483647\n");
	write_file("sys/user/max_user_namespaces", "2147483647\n");
	write_file("sys/user/max_mnt_namespaces", "2147483647\n");
	check_names(ENOSPC, "sysctl user");
	check_names(EPERM, "none of its settings");
	scoped_free char *remove = text_format("rm -rf %s", folder);
	CHECK(system(remove) == 0);
	return check_result("refusal");
}
