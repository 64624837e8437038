/* SPDX-License-Identifier: Apache-2.0 */
/* Tests which jobs get the jail, where the administrator selects some. */
#include <pwd.h>

#include "native/testing/check.h"
#include "spank_jail/options/selection.h"

static struct jail_error err;

static int parse(struct jail_selection *selection, const char *argument)
{
	*selection = (struct jail_selection){ 0 };
	return jail_selection_parse(selection, argument, &err);
}

static void test_arguments(void)
{
	struct jail_selection selection;

	CHECK(parse(&selection, "jail-partitions=trial,gpu") == 0 && jail_selection_is_given(&selection));
	CHECK(parse(&selection, "jail-users=1001,2000-2999") == 0 && jail_selection_is_given(&selection));
	CHECK(parse(&selection, "jail-groups=100") == 0 && jail_selection_is_given(&selection));
	CHECK(parse(&selection, "jail-by-request=yes") == 0 && jail_selection_is_given(&selection));
	CHECK(parse(&selection, "jail-by-request=no") == 0 && !jail_selection_is_given(&selection));
	CHECK(parse(&selection, "jail-something=1") == 1 && parse(&selection, "users=1") == 1);
	const char *const wrong[] = { "jail-partitions=", "jail-partitions=a,", "jail-partitions=,a", "jail-partitions=a,,b", "jail-users=",
				      "jail-users=ann", "jail-groups=2-1", "jail-by-request=", "jail-by-request=maybe" };
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		CHECK(parse(&selection, wrong[i]) == -1 && !jail_selection_is_given(&selection));
}

static void test_partitions(void)
{
	struct jail_selection selection;

	parse(&selection, "jail-partitions=trial,gpu");
	CHECK(jail_selection_names_partition(&selection, "trial") && jail_selection_names_partition(&selection, "gpu"));
	/* A job that waits for one of several: it may come to run in the one that is named. */
	CHECK(jail_selection_names_partition(&selection, "cpu,gpu"));
	CHECK(!jail_selection_names_partition(&selection, "cpu") && !jail_selection_names_partition(&selection, ""));
	CHECK(!jail_selection_names_partition(&selection, "tria") && !jail_selection_names_partition(&selection, "trial2") &&
	      !jail_selection_names_partition(&selection, "l,gp"));
}

static void test_users_and_groups(void)
{
	struct jail_selection selection;
	const gid_t groups[] = { 5000, 6000 };

	parse(&selection, "jail-users=2000-2001");
	CHECK(jail_selection_names_user(&selection, 2001, 1, NULL, 0) && !jail_selection_names_user(&selection, 2002, 2001, groups, 2));
	/* root is known on every machine, and in group 0 alone, or in some that no number here is of. */
	parse(&selection, "jail-groups=6000");
	CHECK(jail_selection_names_user(&selection, 0, 0, groups, 2) && jail_selection_names_user(&selection, 0, 6000, NULL, 0));
	CHECK(!jail_selection_names_user(&selection, 0, 0, groups, 1));
	/* `sg` left the primary group out of what slurmctld sends. */
	parse(&selection, "jail-groups=0");
	CHECK(jail_selection_names_user(&selection, 0, 5000, groups, 2));
	/* Whose groups nobody knows here. */
	parse(&selection, "jail-groups=6000");
	CHECK(!getpwuid(3999999999U) && jail_selection_names_user(&selection, 3999999999U, 1, NULL, 0));
}

int main(void)
{
	test_arguments();
	test_partitions();
	test_users_and_groups();
	return check_result("selection");
}
