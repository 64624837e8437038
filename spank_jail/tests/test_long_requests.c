/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that requests that name too many jobs are refused, in a program that stands for slurmctld. */
#include "native/testing/check.h"
#include "spank_jail/guards/common/imported_functions.h"
#include "spank_jail/guards/controller/long_requests.h"

#define REQUEST_JOB_INFO 2003
#define REQUEST_SUBMIT_BATCH_JOB 4003
#define REQUEST_SUBMIT_BATCH_HET_JOB 4028

static void test_lengths(void)
{
	static const unsigned char body[5000];

	CHECK(!jail_long_requests_is_one(REQUEST_JOB_INFO, body, 14));
	CHECK(!jail_long_requests_is_one(REQUEST_JOB_INFO, body, 4096));
	CHECK(jail_long_requests_is_one(REQUEST_JOB_INFO, body, 4097));
	CHECK(!jail_long_requests_is_one(REQUEST_SUBMIT_BATCH_JOB, body, sizeof(body)));
}

static void test_components(void)
{
	static const unsigned char few[] = { 0, 128, 0 }, many[] = { 0, 129, 0 }, more[] = { 1, 0, 0 };

	CHECK(!jail_long_requests_is_one(REQUEST_SUBMIT_BATCH_HET_JOB, few, sizeof(few)));
	CHECK(jail_long_requests_is_one(REQUEST_SUBMIT_BATCH_HET_JOB, many, sizeof(many)));
	CHECK(jail_long_requests_is_one(REQUEST_SUBMIT_BATCH_HET_JOB, more, sizeof(more)));
	CHECK(!jail_long_requests_is_one(REQUEST_SUBMIT_BATCH_HET_JOB, many, 1));
}

int main(void)
{
	struct jail_error error;

	test_lengths();
	test_components();
	/* This program has none of Slurm's functions. */
	CHECK(jail_long_requests_guard(jail_imports_program(), &error) == 1);
	return check_result("long_requests");
}
