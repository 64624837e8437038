/* SPDX-License-Identifier: Apache-2.0 */
/* Counts, per node, what the plugins do, such as steps that entered the jail. The numbers lie in one
 * file, which every slurmstepd maps into memory. The plugins in spank_jail/slurm and pyxis/slurm
 * call it, and node_counters_show.c. */
#define _GNU_SOURCE
#include "node_counters.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "scoped.h"

#define SIZE ((off_t)(JAIL_NODE_COUNTER_COUNT * sizeof(uint64_t)))

static uint64_t *mapped;
static pid_t mapped_by;

void jail_node_counters_open(const char *file)
{
	scoped_fd fd = open(file, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);

	/* Room for it, too: who writes to a page that a full file system lacks is ended. Two at once give it the same length. */
	if (fd < 0 || fallocate(fd, 0, 0, SIZE))
		return;
	void *place = mmap(NULL, (size_t)SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (place == MAP_FAILED)
		return;
	if (madvise(place, (size_t)SIZE, MADV_DONTFORK))
		munmap(place, (size_t)SIZE);
	else {
		mapped = place;
		mapped_by = getpid();
	}
}

void jail_node_count(enum jail_node_counter which, uint64_t amount)
{
	if (mapped && mapped_by == getpid())
		__atomic_fetch_add(&mapped[which], amount, __ATOMIC_RELAXED);
}

int jail_node_counters_read(const char *file, uint64_t values[JAIL_NODE_COUNTER_COUNT])
{
	scoped_fd fd = open(file, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	ssize_t got = fd < 0 ? -1 : read(fd, values, (size_t)SIZE);

	if (got >= 0 && got != SIZE)
		errno = EBADMSG;
	return got == SIZE ? 0 : -1;
}
