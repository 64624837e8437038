/* SPDX-License-Identifier: Apache-2.0 */
/* Tests which directories and variables a container gets for MPI. */
#define _GNU_SOURCE
#include "native/base/scoped.h"
#include "native/testing/check.h"
#include "pyxis/step/pmix.h"

static const struct pyxis_owner owner = { 7, 0, 1000, 100 };

static bool has(const struct text_list *list, const char *start)
{
	for (size_t i = 0; i < list->n; i++)
		if (text_starts(list->items[i], start))
			return true;
	return false;
}

static void check_places(void)
{
	char *none[] = { (char *)"PMIX_RANK=0", NULL };
	char *job[] = { (char *)"A=b", (char *)"PMIX_SERVER_TMPDIR=/proc/self", NULL };
	scoped_list nothing = { 0 }, user = { 0 };

	pyxis_pmix_places(none, &owner, true, &nothing);
	CHECK(!nothing.n);
	/* Of the rest nothing is there. */
	pyxis_pmix_places(job, &owner, false, &user);
	CHECK(user.n == 1 && has(&user, "/proc/self /proc/self none x-create=auto,rbind"));
}

static void check_environment(void)
{
	char *none[] = { (char *)"PMIX_RANK=0", NULL };
	char *there[] = { (char *)"PMIX_SERVER_TMPDIR=/proc/self", (char *)"PMIX_SECURITY_MODE=munge,native", NULL };
	char *gone[] = { (char *)"PMIX_SERVER_TMPDIR=/proc/none", NULL };
	char *chosen[] = { (char *)"PMIX_SERVER_TMPDIR=/proc/none", (char *)"PMIX_MCA_gds=ds21", NULL };
	scoped_list nothing = { 0 }, user = { 0 }, root = { 0 }, joined = { 0 }, kept = { 0 };

	pyxis_pmix_environment(none, true, &nothing);
	pyxis_pmix_environment(there, false, &user);
	CHECK(!nothing.n && !user.n);
	pyxis_pmix_environment(there, true, &root);
	CHECK(root.n == 1 && has(&root, "PMIX_SECURITY_MODE=munge"));
	pyxis_pmix_environment(gone, false, &joined);
	CHECK(joined.n == 1 && has(&joined, "PMIX_MCA_gds=hash"));
	pyxis_pmix_environment(chosen, false, &kept);
	CHECK(!kept.n);
}

int main(void)
{
	check_places();
	check_environment();
	return check_result("pmix");
}
