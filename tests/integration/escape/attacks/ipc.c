/* SPDX-License-Identifier: Apache-2.0 */
/* Objects of System V and POSIX: left by one job, looked for by another. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <mqueue.h>
#include <stdio.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "attack.h"

static key_t key(void)
{
	return (key_t)given_number("IPC_KEY");
}

/* By the system call: the older C libraries have it in a library of its own. */
static long queue(int flags)
{
	struct mq_attr attributes = { .mq_maxmsg = 1, .mq_msgsize = 8 };

	return syscall(SYS_mq_open, given("MARK"), flags, 0666, &attributes);
}

static void shm_path(char path[300])
{
	snprintf(path, 300, "/dev/shm/%s", given("MARK"));
}

/* Attached and left: what is mapped by nobody stays, too. */
static void leave(void)
{
	char path[300];

	shm_path(path);
	if (shmget(key(), 4096, IPC_CREAT | 0666) < 0 || semget(key(), 1, IPC_CREAT | 0666) < 0 ||
	    msgget(key(), IPC_CREAT | 0666) < 0 || queue(O_CREAT | O_RDWR) < 0 || open(path, O_CREAT | O_RDWR, 0666) < 0)
		broken("leave an object");
	errno = 0;
	held("one of each kind is left");
}

static void find(int found, const char *what)
{
	if (found >= 0)
		escaped("%s of another job is there", what);
	held("find %s", what);
}

static void find_shared_memory(void)
{
	find(shmget(key(), 0, 0), "shared memory");
}

static void find_semaphores(void)
{
	find(semget(key(), 0, 0), "a set of semaphores");
}

static void find_messages(void)
{
	find(msgget(key(), 0), "a queue of messages");
}

static void find_posix_queue(void)
{
	find((int)queue(O_RDONLY), "a POSIX queue");
}

static void find_posix_memory(void)
{
	char path[300];

	shm_path(path);
	find(open(path, O_RDONLY), path);
}

const struct attack ipc_attacks[] = {
	{ "leave-ipc", leave },
	{ "find-shared-memory", find_shared_memory },
	{ "find-semaphores", find_semaphores },
	{ "find-messages", find_messages },
	{ "find-posix-queue", find_posix_queue },
	{ "find-posix-memory", find_posix_memory },
	{ NULL, NULL },
};
