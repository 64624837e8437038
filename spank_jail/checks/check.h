/* SPDX-License-Identifier: Apache-2.0 */
/* Functions that all quick checks of a node share: results, arguments, facts of the node, and values remembered until
 * the next run. docs/health.md lists the checks. */
#ifndef NODE_CHECKS_CHECK_H
#define NODE_CHECKS_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Exit statuses. */
enum { CHECK_PASSED, CHECK_FAILED, CHECK_COULD_NOT_RUN };

/* Those of main, without the program's name. */
extern char **check_arguments;

/* Print why, and return the status. */
int check_failed(const char *format, ...) __attribute__((format(printf, 1, 2)));
int check_could_not_run(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Arguments KEY=VALUE of the check. A number that is none ends the program: it could not run. */
const char *check_word(const char *key, const char *otherwise);
uint64_t check_number(const char *key, uint64_t otherwise);

/* The name of the node. */
const char *check_node(void);

/* What role-worker wrote down of this node (/run/cellblock/node-facts), a new string; NULL: it did not. */
char *check_fact(const char *key);

/* A file that the check remembers something in: its text, a new string, or NULL. */
char *check_recall(const char *name);
/* Ends the program when it cannot: without memory it could not run. */
void check_remember(const char *name, const char *text);
/* Whether it was remembered less than `apart` seconds ago: what is compared with it says little. */
bool check_is_fresh(const char *name, uint64_t apart);
/* Its path, a new string; NULL: the check was started by hand, and has no folder. */
char *check_path(const char *name);

/* A small file, as in /proc; NULL and errno. */
char *check_read(const char *path);

/* Calls `work` in a process of its own, which may hang in the kernel. Returns its status, or after `seconds` that of a failure that
 * says that `what` does not answer; so it does as long as an earlier one hangs. */
int check_bounded(int (*work)(void), const char *what, unsigned seconds);

/* From now on, SIGALRM ends the program: it failed for `reason`. */
void check_fails_after(unsigned seconds, const char *reason);

/* Whether a job has a process on this node: slurmstepd, which serves a socket as long as it runs. -1: that is not known. */
int check_has_jobs(void);

int check_jail(void);
int check_shared(void);
int check_writable(void);
int check_disk(void);
int check_memory(void);
int check_shm(void);
int check_resources(void);
int check_cgroup(void);
int check_clock(void);
int check_dns(void);
int check_auth(void);
int check_network(void);
int check_stuck(void);
int check_zombies(void);
int check_leftovers(void);
int check_gpu(void);
int check_gpu_errors(void);
int check_gpu_links(void);
int check_gpu_state(void);
int check_gpu_xid(void);
int check_gpu_xid_warnings(void);
int check_kernel_errors(void);
int check_kernel_warnings(void);

#endif
