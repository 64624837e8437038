/* SPDX-License-Identifier: Apache-2.0 */
/* An attack is a function that tries one way out of the jail, and says how it ended.
 *
 * It ends by escaped() or held(), never by returning. It must harm nothing: the kernel is the test
 * machine's own. Where it could change something of the kernel, it proves that it may, and writes back
 * what is there.
 */
#ifndef ATTACK_H
#define ATTACK_H

#include <stddef.h>
#include <sys/types.h>

/* "escaped: WHAT" on standard output, and the end of the program. */
_Noreturn void escaped(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* "held: WHAT: ERRNO"; errno 0 leaves it out. */
_Noreturn void held(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* "absent: WHAT": this kernel, or this machine, has nothing of the kind. As good as held; no proof below. */
_Noreturn void absent(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* "broken: WHAT": the test itself is wrong. */
_Noreturn void broken(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* A variable that the test gives: see arena.py. */
const char *given(const char *name);
long given_number(const char *name);

/* Reads the file that only the outside has, below directory `fd`: escapes if it can. */
void read_canary_at(int fd, const char *prefix);
/* Opens `path` for writing and writes back what it holds, or writes nothing where it cannot be read. */
void write_back(const char *path);

/* Calls `visit` with the number of every process that /proc shows and that is not of this job. */
void for_each_outside(void (*visit)(pid_t pid));
/* Whether it shares this job's mount namespace, is this process or its parent, or an ordinary user's own. */
int is_of_this_job(pid_t pid);
/* Whether process 1 here is not the node's. */
int is_own_pid_namespace(void);
/* The number that `variable` gives of an outside process called `name`. */
pid_t outside_process(const char *variable, const char *name);
/* The number of an outside process by its name, 0 if none is to be seen. */
pid_t find_process(const char *name);

struct attack {
	const char *name;
	void (*run)(void);
};

extern const struct attack proc_attacks[], kernel_attacks[], mount_attacks[], process_attacks[],
	user_namespace_attacks[], device_attacks[], socket_attacks[], daemon_attacks[], ipc_attacks[],
	privilege_attacks[], ending_attacks[], served_file_attacks[], request_attacks[];

/* Not an attack: tells of what is opened and made, until it is ended. */
_Noreturn void watch(int count, char **paths);

#endif
