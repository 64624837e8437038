/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that looking up unknown host names does not hold up the caller, in a program that stands for slurmctld. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "native/testing/check.h"
#include "spank_jail/guards/controller/host_names.h"
#include "spank_jail/guards/common/imported_functions.h"

#define NAMES 300
/* Seconds for all of them: one that is saved up, and 5 ms for each. */
#define MOST 4.0

static void test_numbers(void)
{
	struct sockaddr_storage address;

	CHECK(jail_host_names_find("10.1.2.3", &address));
	CHECK(address.ss_family == AF_INET && ((struct sockaddr_in *)&address)->sin_addr.s_addr == htonl(0x0a010203));
	CHECK(jail_host_names_find("fd00::1", &address));
	CHECK(address.ss_family == AF_INET6);
	CHECK(!jail_host_names_find("", &address));
}

static void test_a_name(void)
{
	struct sockaddr_storage address;

	for (int i = 0; i < 2; i++) {
		CHECK(jail_host_names_find("localhost", &address));
		CHECK(address.ss_family == AF_INET && ((struct sockaddr_in *)&address)->sin_addr.s_addr == htonl(INADDR_LOOPBACK));
	}
}

static void test_names_that_nobody_knows(void)
{
	struct timespec before, after;
	struct sockaddr_storage address;
	char name[300];

	memset(name, 'a', sizeof(name) - 1);
	name[sizeof(name) - 1] = 0;
	CHECK(!jail_host_names_find(name, &address));
	(void)clock_gettime(CLOCK_MONOTONIC, &before);
	for (int i = 0; i < NAMES; i++) {
		(void)snprintf(name, sizeof(name), "nobody-%d.invalid", i);
		CHECK(!jail_host_names_find(name, &address));
	}
	(void)clock_gettime(CLOCK_MONOTONIC, &after);
	CHECK((double)(after.tv_sec - before.tv_sec) + 1e-9 * (double)(after.tv_nsec - before.tv_nsec) < MOST);
	/* What was found before is known still. */
	CHECK(jail_host_names_find("localhost", &address));
}

int main(void)
{
	struct jail_error error;

	test_numbers();
	test_a_name();
	test_names_that_nobody_knows();
	/* This program has none of Slurm's functions. */
	CHECK(jail_host_names_guard(jail_imports_program(), NULL, NULL, &error) == 1);
	return check_result("host_names");
}
