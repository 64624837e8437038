/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the reading of passwd(5) and group(5): which entry is found, and that malformed lines are passed over. */
#include <stdlib.h>

#include "native/base/accounts.h"
#include "native/testing/check.h"

static struct jail_error err;
static struct jail_account account;

static int find(const char *passwd_text, const char *group_text, const char *user)
{
	char *passwd = strdup(passwd_text), *group = strdup(group_text);
	int result = jail_account_parse(passwd, group, user, &account, &err);

	free(passwd);
	free(group);
	return result;
}

static const char passwd[] =
	"root:x:0:0:root:/root:/bin/bash\n"
	"broken line\n"
	"alice:x:1000:1000:A:/home/alice:/bin/zsh\n"
	"bare:x:1001:1001:::\n"
	"77:x:1002:1002::/:/bin/sh\n"
	"wrong:x:1e3:5::/:/bin/sh\n"
	"minus:x:-1:5::/:/bin/sh\n"
	"max:x:4294967295:5::/:/bin/sh\n";
static const char group[] = "root:x:0:\nalice:x:1000:\nvideo:x:44:bob,alice\nali:x:45:ali\ndup:x:44:alice\nx:y\n";

int main(void)
{
	CHECK(find(passwd, group, "alice") == 0);
	CHECK(account.uid == 1000 && account.gid == 1000 && !strcmp(account.shell, "/bin/zsh"));
	CHECK(account.n_groups == 2 && account.groups[0] == 1000 && account.groups[1] == 44);
	CHECK(find(passwd, group, "1000") == 0 && !strcmp(account.name, "alice"));
	CHECK(find(passwd, group, "bare") == 0 && !strcmp(account.home, "/") && !strcmp(account.shell, "/bin/sh"));
	CHECK(find(passwd, group, "77") == 0 && account.uid == 1002);
	CHECK(find(passwd, group, "nobody") == -1);
	CHECK_HAS(err.message, "no such user");
	CHECK(!strcmp(err.target, "nobody"));
	CHECK(find(passwd, group, "wrong") == -1);
	CHECK_HAS(err.message, "is no number");
	CHECK(find(passwd, group, "minus") == -1);
	CHECK(find(passwd, group, "max") == -1);
	CHECK(find("", "", "root") == -1);
	CHECK(find("::::::\n", "", "") == -1);
	return check_result("accounts");
}
