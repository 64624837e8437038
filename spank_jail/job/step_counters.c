/* SPDX-License-Identifier: Apache-2.0 */
/* Counts steps in a file that all slurmstepds of the node map. plugin.c and step_counters_show.c call it. */
#define _GNU_SOURCE
#include "step_counters.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "native/base/scoped.h"

#define SIZE ((off_t)(JAIL_STEP_COUNTER_COUNT * sizeof(uint64_t)))

static uint64_t *mapped;
static pid_t mapped_by;

void jail_step_counters_open(const char *file)
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

void jail_step_count(enum jail_step_counter which)
{
	uint64_t *place = mapped_by == getpid() ? mapped : NULL;

	mapped = NULL;
	if (place)
		__atomic_fetch_add(&place[which], 1, __ATOMIC_RELAXED);
}

int jail_step_counters_read(const char *file, uint64_t values[JAIL_STEP_COUNTER_COUNT])
{
	scoped_fd fd = open(file, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	ssize_t got = fd < 0 ? -1 : read(fd, values, (size_t)SIZE);

	if (got >= 0 && got != SIZE)
		errno = EBADMSG;
	return got == SIZE ? 0 : -1;
}
