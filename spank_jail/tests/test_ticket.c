/* SPDX-License-Identifier: Apache-2.0 */
/* Tests tickets for --no-jail, in a directory on this machine. Runs as root only, because tickets must be root's. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "native/testing/check.h"
#include "spank_jail/options/ticket.h"

static char directory[] = "/tmp/test_ticket.XXXXXX";
static struct jail_error err;
static int folder;

static bool claims(uid_t uid, const char *name, const char *claimant)
{
	memset(&err, 0, sizeof(err));
	return !jail_ticket_claim(directory, uid, name, claimant, &err);
}

static void age(const char *name)
{
	const struct timespec old[] = { { 1, 0 }, { 1, 0 } };

	CHECK(!utimensat(folder, name, old, AT_SYMLINK_NOFOLLOW));
}

static void test_life(void)
{
	char one[JAIL_TICKET_SIZE], two[JAIL_TICKET_SIZE];

	CHECK(!jail_ticket_make(directory, one, &err) && !jail_ticket_make(directory, two, &err) && strcmp(one, two));
	CHECK(claims(0, one, "7.0") && claims(0, one, "7.0")); /* each node of a step, a job that is requeued */
	CHECK(!claims(0, one, "7.1"));
	CHECK_HAS(err.message, "used by 7.0 already");
	CHECK(!claims(0, one, "8.0") && claims(0, two, "8.0"));
	jail_ticket_drop(directory, one);
	CHECK(!claims(0, one, "7.0"));
	CHECK_HAS(err.message, "not known");
	age(two);
	CHECK(!claims(0, two, "8.0"));
	CHECK_HAS(err.message, "older than 30 days");
	CHECK(!jail_ticket_make(directory, one, &err));
	CHECK(!claims(0, two, "8.0"));
	CHECK_HAS(err.message, "not known"); /* swept by the one before */
}

static void test_forgeries(void)
{
	static const char fake[] = "0123456789abcdef0123456789abcdef";
	const char *const names[] = { "", "x", "../0/0123456789abcdef01234567890", "0123456789ABCDEF0123456789ABCDEF" };

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		CHECK(!claims(0, names[i], "1.0"));
		CHECK_HAS(err.message, "no ticket");
	}
	CHECK(!claims(0, fake, "1.0"));
	/* What sbcast can be had to make there. */
	CHECK(!mknodat(folder, fake, S_IFREG | 0600, 0) && !claims(0, fake, "1.0"));
	CHECK_HAS(err.message, "not a link of uid 0");
	CHECK(!unlinkat(folder, fake, 0) && !mkdirat(folder, fake, 0700) && !claims(0, fake, "1.0"));
	CHECK(!unlinkat(folder, fake, AT_REMOVEDIR) && !symlinkat("anything", folder, fake) && claims(0, fake, "1.0"));
	CHECK(!fchownat(folder, fake, 1234, 1234, AT_SYMLINK_NOFOLLOW) && !claims(0, fake, "1.0"));
	CHECK(!fchmodat(folder, ".", 0770, 0) && !claims(0, fake, "1.0"));
	CHECK_HAS(err.message, "mode 0700");
	CHECK(!fchmodat(folder, ".", 0700, 0) && !claims(1234, fake, "1.0"));
	CHECK_HAS(err.message, "install -d -m 700 -o 1234");
	CHECK(!chmod(directory, 0777) && !claims(0, fake, "1.0"));
	CHECK_HAS(err.message, "writable by root alone");
	CHECK(!chmod(directory, 0755) && jail_ticket_claim("/no/such", 0, fake, "1.0", &err));
	CHECK_HAS(err.message, "inside the jail");
}

int main(void)
{
	char path[64], command[64];

	if (geteuid())
		return check_result("ticket");
	if (!mkdtemp(directory))
		return 1;
	snprintf(path, sizeof(path), "%s/0", directory);
	CHECK(!mkdir(path, 0700) && !chmod(directory, 0755));
	folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	test_life();
	test_forgeries();
	snprintf(command, sizeof(command), "rm -rf %s", directory);
	return system(command) || check_result("ticket");
}
