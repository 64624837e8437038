/* SPDX-License-Identifier: Apache-2.0 */
/* Shares memory between the tasks of a step on a node: the first makes the container, the others wait and then join
 * it. pyxis/slurm calls it. */
#define _GNU_SOURCE
#include "shared_memory.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "native/base/scoped.h"

/* How long one may wait for a first task that was killed. */
#define LOOK_NS 200000000L

struct pyxis_shared *pyxis_shared_make(struct jail_error *err)
{
	struct pyxis_shared *shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (shared != MAP_FAILED)
		return shared;
	jail_fail(err, "mmap", errno, "no memory for the tasks to meet in");
	return NULL;
}

bool pyxis_shared_claim(struct pyxis_shared *shared)
{
	uint32_t idle = PYXIS_IDLE;

	if (!__atomic_compare_exchange_n(&shared->state, &idle, PYXIS_STARTING, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
		return false;
	__atomic_store_n(&shared->leader, getpid(), __ATOMIC_RELEASE);
	return true;
}

void pyxis_shared_publish(struct pyxis_shared *shared, enum pyxis_state state)
{
	__atomic_store_n(&shared->state, state, __ATOMIC_RELEASE);
	syscall(SYS_futex, &shared->state, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static bool has_ended(int process)
{
	struct pollfd wait = { .fd = process, .events = POLLIN };

	return poll(&wait, 1, 0) > 0;
}

enum pyxis_state pyxis_shared_wait(struct pyxis_shared *shared)
{
	const struct timespec look = { 0, LOOK_NS };
	scoped_fd leader = -1;
	uint32_t state;

	while ((state = __atomic_load_n(&shared->state, __ATOMIC_ACQUIRE)) == PYXIS_STARTING) {
		pid_t pid = __atomic_load_n(&shared->leader, __ATOMIC_ACQUIRE);
		if (leader < 0 && pid)
			leader = (int)syscall(SYS_pidfd_open, pid, 0);
		/* It may have published and gone in between. */
		if (pid && (leader < 0 ? errno == ESRCH : has_ended(leader))) {
			state = __atomic_load_n(&shared->state, __ATOMIC_ACQUIRE);
			return state == PYXIS_STARTING ? PYXIS_FAILED : state;
		}
		syscall(SYS_futex, &shared->state, FUTEX_WAIT, PYXIS_STARTING, &look, NULL, 0);
	}
	return state;
}

void pyxis_shared_enter(struct pyxis_shared *shared)
{
	__atomic_add_fetch(&shared->entered, 1, __ATOMIC_ACQ_REL);
}
