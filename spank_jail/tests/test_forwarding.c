/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the count of nodes to which a message is to be forwarded. */
#include <stdint.h>
#include <string.h>

#include "native/testing/check.h"
#include "spank_jail/guards/node/forwarding.h"

static unsigned char message[65536];
static size_t size;

static void add(uint32_t number, size_t bytes)
{
	for (size_t i = bytes; i-- > 0;)
		message[size++] = (unsigned char)(number >> 8 * i);
}

/* A message that is for `nodes` others, called `names`, with a wait of so many ms. */
static void write_message(unsigned nodes, const char *names, uint32_t wait_ms)
{
	size = 0;
	add(0, 4);
	for (int i = 0; i < 3; i++)
		add(0, 2);
	add(0, 4);
	add(nodes, 2);
	if (!nodes)
		return;
	add((uint32_t)strlen(names) + 1, 4);
	memcpy(message + size, names, strlen(names) + 1);
	size += strlen(names) + 1;
	add(wait_ms, 4);
}

static enum jail_forward kind(void)
{
	return jail_forward_read(message, size).kind;
}

static void test_counts(void)
{
	CHECK(jail_forward_count("a") == 1);
	CHECK(jail_forward_count("a,b,c") == 3);
	CHECK(jail_forward_count("a[1-3,7],b") == 5);
	/* Slurm takes blanks for commas. */
	CHECK(jail_forward_count("a b\tc\nd[1-3] e,f") == 8);
	CHECK(jail_forward_count("a[1-3]b[1-4]") == 12);
	CHECK(jail_forward_count("a[0001-1024]") == 1024);
}

static void test_too_many(void)
{
	const char *const lists[] = { "a[1-1025]", "a[1-60000]", "a[1-100]b[1-100]", "a[1-1024],b", "a[4294967296-4294967297]",
				      "a[", "a[]", "a[1", "a[1-", "a[1-2", "a[1-1000] b[1-1000]", "a\tb[1-1024]", "a[2-1]", "a[x]", "a[1,]", "a[1;2]", "a[1x2]" };

	for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++)
		CHECK(jail_forward_count(lists[i]) > JAIL_FORWARD_MOST);
}

static void test_headers(void)
{
	write_message(0, "", 0);
	CHECK(kind() == JAIL_FORWARD_NONE && !jail_forward_read(message, size).length);
	message[1] = 2;
	CHECK(jail_forward_read(message, size).length == 2 << 16);
	write_message(3, "a[1-3]", 60000);
	const struct jail_forward_header header = jail_forward_read(message, size);
	CHECK(header.kind == JAIL_FORWARD_FEW && header.nodes == 3 && !strcmp(header.names, "a[1-3]"));
	write_message(3, "a[1-60000]", 60000);
	CHECK(kind() == JAIL_FORWARD_REFUSED);
	write_message(60000, "a", 60000);
	CHECK(kind() == JAIL_FORWARD_REFUSED);
	write_message(1, "a", UINT32_MAX);
	CHECK(kind() == JAIL_FORWARD_REFUSED);
}

/* Whatever part of it is there, it is read no further. */
static void test_parts(void)
{
	write_message(3, "a[1-3]", 60000);
	for (size_t whole = size; size > 0; size--) {
		CHECK(size == whole || kind() == JAIL_FORWARD_UNFINISHED);
	}
}

/* What is a string to the sender ends with 0, and has no other one. */
static void test_strings(void)
{
	write_message(1, "abc", 0);
	message[size - 5] = 'd';
	CHECK(kind() == JAIL_FORWARD_REFUSED);
	write_message(1, "abc", 0);
	message[size - 7] = 0;
	CHECK(kind() == JAIL_FORWARD_REFUSED);
	write_message(1, "abc", 0);
	memset(message + 16, 0xff, 4);
	CHECK(kind() == JAIL_FORWARD_REFUSED);
	memset(message + 16, 0, 4);
	CHECK(kind() == JAIL_FORWARD_REFUSED);
}

int main(void)
{
	test_counts();
	test_too_many();
	test_headers();
	test_parts();
	test_strings();
	return check_result("forwarding");
}
