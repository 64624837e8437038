/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that the second unlock of a lock is ignored, in a program that stands for slurmctld. */
#include <pthread.h>
#include <stdbool.h>
#include <unistd.h>

#include "native/testing/check.h"
#include "spank_jail/guards/controller/double_unlock.h"
#include "spank_jail/guards/common/imported_functions.h"

static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;

/* Whether somebody can have it for himself. */
static bool is_free(void)
{
	if (pthread_rwlock_trywrlock(&lock))
		return false;
	pthread_rwlock_unlock(&lock);
	return true;
}

static void *unlock_twice(void *unused)
{
	(void)unused;
	pthread_rwlock_rdlock(&lock);
	pthread_rwlock_unlock(&lock);
	pthread_rwlock_unlock(&lock);
	return NULL;
}

/* Another thread's reader must still be there after the second unlock. */
static void *read_and_wait(void *ends)
{
	int *pipe_ends = ends;
	char byte;

	pthread_rwlock_rdlock(&lock);
	if (write(pipe_ends[1], "x", 1) != 1 || read(pipe_ends[2], &byte, 1) != 1)
		return ends;
	pthread_rwlock_unlock(&lock);
	return NULL;
}

static void run(void *(*function)(void *), void *argument)
{
	pthread_t thread;

	CHECK(!pthread_create(&thread, NULL, function, argument));
	CHECK(!pthread_join(thread, NULL));
}

static void test_unlocked_twice(void)
{
	run(unlock_twice, NULL);
	CHECK(is_free());
	CHECK(!pthread_rwlock_tryrdlock(&lock));
	CHECK(!pthread_rwlock_unlock(&lock));
}

static void test_anothers_lock(void)
{
	int there[2], back[2];
	char byte;
	pthread_t reader;

	CHECK(!pipe(there) && !pipe(back));
	int ends[] = { there[0], there[1], back[0] };
	CHECK(!pthread_create(&reader, NULL, read_and_wait, ends));
	CHECK(read(there[0], &byte, 1) == 1);
	run(unlock_twice, NULL);
	CHECK(!is_free());
	CHECK(write(back[1], "x", 1) == 1);
	CHECK(!pthread_join(reader, NULL));
	CHECK(is_free());
}

static void *read_twice(void *unused)
{
	(void)unused;
	pthread_rwlock_rdlock(&lock);
	pthread_rwlock_rdlock(&lock);
	pthread_rwlock_unlock(&lock);
	CHECK(!is_free());
	pthread_rwlock_unlock(&lock);
	CHECK(is_free());
	return NULL;
}

static void test_locked_twice(void)
{
	run(read_twice, NULL);
}

int main(void)
{
	struct jail_error error;

	CHECK(!jail_double_unlock_guard(jail_imports_program(), &error));
	test_unlocked_twice();
	test_anothers_lock();
	test_locked_twice();
	return check_result("double_unlock");
}
