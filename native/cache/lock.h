/* SPDX-License-Identifier: Apache-2.0 */
/* Locks of images and layers that are being made. The holder writes its progress into the lock's file; others wait
 * and read it.
 *
 * Locks are those of fcntl(2), of an open file description: the kernel releases them however a process ends, and NFS
 * passes them on. Without a lock nothing but time is lost: who cannot lock, or has waited enough, makes the thing
 * itself.
 */
#ifndef ENROOT_CACHE_LOCK_H
#define ENROOT_CACHE_LOCK_H

#include <stdbool.h>
#include <sys/types.h>
#include <time.h>

enum lock_kind { LOCK_SHARED, LOCK_EXCLUSIVE };

/* Takes a lock on the whole of `fd`, or makes the one it has into this kind. Returns 0, or -1 at once and errno (EAGAIN: another
 * has it). A shared lock takes a descriptor that reads, an exclusive one that writes. */
int lock_take(int fd, enum lock_kind kind);
/* Whether anybody else holds any lock on it. */
bool lock_is_held(int fd);

/* The file `name` in `folder`, locked: a descriptor, or -1 and errno (EAGAIN: another has it; anything else: there is no locking
 * here). `for_all`: other users lock it too. The file was made by this call, or belongs to another user. */
int lock_file(int folder, const char *name, bool for_all);
/* Removes the file that is held, and lets go. */
void lock_file_done(int folder, const char *name, int *fd);

struct lock_progress {
	unsigned long long done, total;
	long pid;
	char host[65];
};
/* Writes how far it is, into a file that lock_file made; into no other. */
void lock_tell(int fd, unsigned long long done, unsigned long long total);
/* What the holder told; false: nothing that can be read. */
bool lock_ask(int folder, const char *name, struct lock_progress *progress);

/* Patience with a holder. Starts as { .patience = seconds without progress, .most = seconds altogether }. */
struct lock_wait {
	long patience, most;
	const char *what;  /* for messages */
	double began, changed, reported;
	unsigned long long at_first; /* bytes that the holder had when this one began to wait */
	char seen[128];
	unsigned turns;
};
/* Sleeps a moment, and tells the user now and then. False: waited enough. */
bool lock_wait(struct lock_wait *wait, int folder, const char *name);

#endif
