/* SPDX-License-Identifier: Apache-2.0 */
/* Delays slurmctld's answer to a submission until the job is saved on disk, if that takes only a moment.
 * state_saves.c calls it, and job_submit_jail.c says whose answer.
 *
 * slurmctld answers sbatch when it has the job in memory. If it is killed within the next tenth of a second, it
 * forgets a job whose number its user knows. With a long queue saving takes seconds; then the answer does not wait.
 * It is sent by the thread in which job_submit/jail was called for that submission.
 */
#define _GNU_SOURCE
#include "saved_answers.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "native/base/clock.h"
#include "spank_jail/guards/common/imported_functions.h"

/* Nanoseconds that an answer waits at most, and that the next save may be off for it to wait. */
#define MOST_ANSWER_WAIT NS_PER_S
#define SOON (100 * NS_PER_MS)

/* Saves that have begun and ended, how often nothing was left to save, and when the next one may begin. */
static struct {
	pthread_mutex_t mutex;
	pthread_cond_t changed;
	uint64_t begun, ended, idle;
	int64_t next;
	atomic_int waiting;
} rounds = { .mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };

/* What slurmctld sends an answer by, until 23.02 and since: arguments are passed on as they are. And what has jobs saved. */
static const char *const senders[] = { "slurm_send_node_msg", "send_msg_response" };
static struct {
	int (*send[2])(uintptr_t, uintptr_t, uintptr_t);
	void (*save)(void);
} slurm_answers;

static _Thread_local bool awaits_save;

void jail_answers_await_save(void)
{
	awaits_save = true;
}

bool jail_answers_wait(void)
{
	return rounds.waiting > 0;
}

void jail_answers_note_round(bool begins, int64_t next)
{
	pthread_mutex_lock(&rounds.mutex);
	rounds.ended = rounds.begun;
	rounds.begun += begins;
	rounds.next = next;
	pthread_cond_broadcast(&rounds.changed);
	pthread_mutex_unlock(&rounds.mutex);
}

void jail_answers_note_idle(void)
{
	pthread_mutex_lock(&rounds.mutex);
	rounds.ended = rounds.begun;
	rounds.idle++;
	pthread_cond_broadcast(&rounds.changed);
	pthread_mutex_unlock(&rounds.mutex);
}

static bool next_is_soon(void)
{
	return rounds.next < clock_ns(CLOCK_MONOTONIC) + SOON;
}

/* Waits until all that slurmctld has in memory now is saved, if that is soon. */
static void wait_for_save(void)
{
	int64_t until = clock_ns(CLOCK_REALTIME) + MOST_ANSWER_WAIT;
	struct timespec end = { .tv_sec = until / NS_PER_S, .tv_nsec = until % NS_PER_S };

	rounds.waiting++;
	slurm_answers.save();
	pthread_mutex_lock(&rounds.mutex);
	uint64_t begun = rounds.begun, idle = rounds.idle;
	pthread_mutex_unlock(&rounds.mutex);
	/* Once more: the save that the first call asked for may have begun before it was counted. One that then begins, or finds
	 * nothing to do, comes after that. */
	slurm_answers.save();
	pthread_mutex_lock(&rounds.mutex);
	while (rounds.ended <= begun && rounds.idle == idle && next_is_soon())
		if (pthread_cond_timedwait(&rounds.changed, &rounds.mutex, &end))
			break;
	pthread_mutex_unlock(&rounds.mutex);
	rounds.waiting--;
}

static int send_answer(int which, uintptr_t first, uintptr_t second, uintptr_t third)
{
	if (awaits_save) {
		awaits_save = false;
		wait_for_save();
	}
	return slurm_answers.send[which](first, second, third);
}

static int send_node_msg(uintptr_t first, uintptr_t second, uintptr_t third)
{
	return send_answer(0, first, second, third);
}

static int send_response(uintptr_t first, uintptr_t second, uintptr_t third)
{
	return send_answer(1, first, second, third);
}

int jail_answers_delay(const struct link_map *slurmctld, struct jail_error *err)
{
	void *const instead[] = { (void *)send_node_msg, (void *)send_response };
	int found = 0;

	if (slurm_answers.save)
		return 0; /* a plugin is begun anew with each reconfiguration, and stays loaded */
	*(void **)&slurm_answers.save = dlsym(RTLD_DEFAULT, "schedule_job_save");
	for (size_t i = 0; slurm_answers.save && i < sizeof(senders) / sizeof(senders[0]); i++) {
		*(void **)&slurm_answers.send[i] = dlsym(RTLD_DEFAULT, senders[i]);
		int missing = slurm_answers.send[i] ? jail_imports_replace(slurmctld, senders[i], instead[i], err) : 1;
		if (missing < 0)
			return missing;
		found += !missing;
	}
	return found ? 0 : jail_fail(err, "dlsym", ENOENT, "slurmctld sends its answers in an unknown way");
}
