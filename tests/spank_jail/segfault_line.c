/* SPDX-License-Identifier: Apache-2.0 */
/* usage: segfault_line NAME FILE - as a user, ends by a segmentation fault of which the kernel's line begins with NAME, of 15 bytes at
 * most, and names FILE, of memory. test_node_checks_kernel_log.py calls it. */
#define _GNU_SOURCE
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#define USER 12345
#define PAGE 4096

int main(int argc, char **argv)
{
	const struct rlimit none = { 0, 0 };

	if (argc != 3 || setrlimit(RLIMIT_CORE, &none) || setresuid(USER, USER, USER))
		return 2;
	int file = memfd_create(argv[2], 0);
	/* Not to be executed. */
	char *code = file < 0 || ftruncate(file, PAGE) ? MAP_FAILED : mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, file, 0);
	if (code == MAP_FAILED || prctl(PR_SET_NAME, argv[1]))
		return 2;
	((void (*)(void))(void *)code)();
	return 2;
}
