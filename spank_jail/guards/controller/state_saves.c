/* SPDX-License-Identifier: Apache-2.0 */
/* Makes slurmctld save its state soon after a change instead of up to five seconds later, so that it forgets no job
 * when it is killed. job_submit_jail.c calls it.
 *
 * Slurm's saving thread asks difftime(3) (from 26.05 timespec_to_secs()) whether the last save is five seconds ago;
 * here the answer is yes sooner. Slurm does not wake that thread for all changes, such as the backfill scheduler's
 * starts; a thread here does. And a controller that was stopped while another took over is ended before it overwrites
 * that one's records.
 */
#define _GNU_SOURCE
#include "state_saves.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "spank_jail/guards/common/imported_functions.h"
#include "native/base/clock.h"
#include "native/base/scoped.h"
#include "spank_jail/guards/common/own_thread.h"
#include "saved_answers.h"

/* As in slurm.conf and slurmctld-acts. */
#define ACTING "/var/lib/slurm/slurmctld/acting-controller"
#define HOST_NAME 256
#define REPLACED "job_submit/jail: another controller acts by now: slurmctld ends here, and writes nothing more\n"
/* Seconds; what slurmctld asks for, or more. */
#define LONG_AGO 60.0
/* Nanoseconds; the second when somebody waits for it. */
#define LEAST_PAUSE 50000000L
#define LEAST_PAUSE_AWAITED 10000000L
/* Its pauses are as many times as long as its saves take processor time; the second when somebody waits for one. */
#define PAUSES 9
#define PAUSES_AWAITED 3
/* Nanoseconds between two looks at when jobs have changed. */
#define EVERY 100000000L
/* Nanoseconds between two saves of the associations: after a change, and without one that was seen. */
#define SOON_ASSOCIATIONS NS_PER_S
#define EVERY_ASSOCIATIONS (60 * NS_PER_S)

/* Of the thread that saves, in nanoseconds: what processor time it had when it began to save, when it may again, and when somebody
 * waits for it. */
static _Thread_local int64_t used_before, may_save, may_save_awaited;
/* The thread that saves begins when slurmctld has read all that it starts with. */
static atomic_bool has_started;

static bool saves(void)
{
	static _Thread_local int answer;
	char name[16] = "";

	if (!answer)
		answer = !prctl(PR_GET_NAME, name) && !strcmp(name, "sstate") ? 1 : -1;
	return answer > 0;
}

/* Whose name stands in the file that slurmctld-acts writes where there are two controllers; one that cannot be read is another's. */
enum acting { NO_FILE, THIS_HOST, ANOTHER_HOST };

static enum acting who_acts(void)
{
	scoped_fd fd = open(ACTING, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
	char acting[HOST_NAME + 1] = "", own[HOST_NAME] = "";
	ssize_t length = fd < 0 ? -1 : read(fd, acting, sizeof(acting) - 1);

	if (fd < 0 && errno == ENOENT)
		return NO_FILE;
	if (length <= 0 || gethostname(own, sizeof(own) - 1))
		return ANOTHER_HOST;
	acting[strcspn(acting, "\n")] = 0;
	return strcmp(acting, own) ? ANOTHER_HOST : THIS_HOST;
}

bool jail_saves_another_acts(void)
{
	return who_acts() == ANOTHER_HOST;
}

bool jail_saves_have_begun(void)
{
	return has_started;
}

/* It is another's turn: at once, and without slurmctld's own end, which would write, too. */
static void end_if_replaced(void)
{
	static _Thread_local enum acting before;
	enum acting now = who_acts();

	if (before == THIS_HOST && now == ANOTHER_HOST) {
		(void)!write(STDERR_FILENO, REPLACED, sizeof(REPLACED) - 1);
		_exit(1);
	}
	before = now;
}

static int64_t next_save(void)
{
	return jail_answers_wait() ? may_save_awaited : may_save;
}

/* The functions by which it saves ask for seconds, too. */
static bool is_saving(void)
{
	return used_before && !may_save;
}

static void end_round(void)
{
	if (!is_saving())
		return;
	int64_t used = clock_ns(CLOCK_THREAD_CPUTIME_ID) - used_before, time = clock_ns(CLOCK_MONOTONIC);

	may_save = time + (used * PAUSES > LEAST_PAUSE ? used * PAUSES : LEAST_PAUSE);
	may_save_awaited = time + (used * PAUSES_AWAITED > LEAST_PAUSE_AWAITED ? used * PAUSES_AWAITED : LEAST_PAUSE_AWAITED);
	jail_answers_note_round(false, may_save_awaited);
}

/* Whether the thread that saves is to do it now; it waits when it has. From 26.05 on it asks when there is something to do,
 * and not before its first save. */
static bool may_save_now(void)
{
	if (is_saving() || clock_ns(CLOCK_MONOTONIC) < next_save())
		return false;
	end_if_replaced();
	has_started = true;
	used_before = clock_ns(CLOCK_THREAD_CPUTIME_ID);
	may_save = may_save_awaited = 0;
	jail_answers_note_round(true, 0);
	return true;
}

/* In place of difftime(3) in slurmctld: in seconds. */
static double count_seconds(time_t now, time_t before)
{
	return saves() && may_save_now() ? LONG_AGO : difftime(now, before);
}

/* In place of Slurm's function of that name there. */
static double timespec_to_secs(struct timespec passed)
{
	return saves() && may_save_now() ? LONG_AGO : (double)passed.tv_sec + (double)passed.tv_nsec / NS_PER_S;
}

/* In place of pthread_cond_timedwait(3) in slurmctld. */
static int wait_until(pthread_cond_t *condition, pthread_mutex_t *mutex, const struct timespec *end)
{
	struct timespec soon = *end;

	if (saves())
		end_round();
	if (saves() && may_save) {
		int64_t left = next_save() - clock_ns(CLOCK_MONOTONIC), until = clock_ns(CLOCK_REALTIME) + (left > 0 ? left : 0);
		if (until / NS_PER_S < end->tv_sec)
			soon = (struct timespec){ until / NS_PER_S, until % NS_PER_S };
	}
	return pthread_cond_timedwait(condition, mutex, &soon);
}

/* In place of pthread_cond_wait(3) there: it has saved all that it was told of, and waits to be told of more. */
static int wait_for_work(pthread_cond_t *condition, pthread_mutex_t *mutex)
{
	if (saves()) {
		has_started = true;
		end_round();
		jail_answers_note_idle();
	}
	return pthread_cond_wait(condition, mutex);
}

/* Of slurmctld: when something of a job has changed last, in whole seconds, and to have the jobs saved. */
struct jobs {
	const volatile time_t *changed;
	void (*save)(void);
};

/* Who may use what: without these a slurmctld that is killed cannot start again until slurmdbd answers, and does not know the
 * users of then. Slurm saves them every five minutes. */
static struct {
	int (*update)(void *change, void *argument);
	int (*save)(void);
	atomic_bool changed;
	int64_t saved; /* when, by the clock; 0: not yet */
} associations;

/* In place of assoc_mgr_update_object() in slurmctld, or of assoc_mgr_update() before 23.11, which slurmdbd has called by a message. */
static int update_associations(void *change, void *argument)
{
	int answer = associations.update(change, argument);

	associations.changed = true;
	return answer;
}

/* What slurmctld saves when it changes, or when it is told to end: one that was killed before does not start without it. */
static void save_all(void)
{
	static const char *const names[] = { "schedule_node_save", "schedule_part_save", "schedule_resv_save", "schedule_trigger_save" };

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		void (*save)(void);
		*(void **)&save = dlsym(RTLD_DEFAULT, names[i]);
		if (save)
			save();
	}
}

static void save_associations(void)
{
	int64_t now = clock_ns(CLOCK_MONOTONIC), passed = now - associations.saved;

	if (!has_started || !associations.save)
		return;
	if (associations.saved && passed < (associations.changed ? SOON_ASSOCIATIONS : EVERY_ASSOCIATIONS))
		return;
	associations.changed = false;
	associations.saved = now;
	(void)associations.save();
}

static void *save_changes(void *argument)
{
	const struct jobs *jobs = argument;
	const struct timespec pause = { .tv_nsec = EVERY };
	bool all_saved = false;
	time_t known = 0;

	(void)prctl(PR_SET_NAME, "jobchanges");
	for (;;) {
		(void)nanosleep(&pause, NULL);
		if (has_started && !all_saved) {
			save_all();
			all_saved = true;
		}
		save_associations();
		/* Before the change is read: more may come within the same second, and they look the same. */
		time_t now = time(NULL), changed = *jobs->changed;
		if (changed <= known)
			continue;
		jobs->save();
		known = changed < now ? changed : now - 1;
	}
	return NULL;
}

static int follow_associations(const struct link_map *slurmctld, struct jail_error *err)
{
	static const char *const names[] = { "assoc_mgr_update_object", "assoc_mgr_update" };

	if (associations.update)
		return 0; /* this plugin is begun anew with each reconfiguration, and stays loaded */
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		*(void **)&associations.update = dlsym(RTLD_DEFAULT, names[i]);
		int missing = associations.update ? jail_imports_replace(slurmctld, names[i], (void *)update_associations, err) : 1;
		if (missing <= 0)
			return missing;
	}
	return 1;
}

static int start_saving_changes(struct jail_error *err)
{
	static struct jobs jobs;

	if (jobs.save)
		return 0; /* a plugin is begun anew with each reconfiguration, and stays loaded */
	jobs.changed = dlsym(RTLD_DEFAULT, "last_job_update");
	*(void **)&jobs.save = dlsym(RTLD_DEFAULT, "schedule_job_save");
	*(void **)&associations.save = dlsym(RTLD_DEFAULT, "dump_assoc_mgr_state");
	if (!jobs.changed || !jobs.save)
		return jail_fail(err, "dlsym", ENOENT, "slurmctld does not say when jobs change");
	int number = jail_own_thread_start(save_changes, &jobs);
	return number ? jail_fail(err, "pthread_create", number, "changes of jobs cannot be saved at once") : 0;
}

int jail_saves_hasten(struct jail_error *err)
{
	const struct link_map *slurmctld = jail_imports_program();
	int missing = slurmctld ? jail_imports_replace(slurmctld, "pthread_cond_timedwait", (void *)wait_until, err) : 1;

	if (missing || jail_imports_replace(slurmctld, "timespec_to_secs", (void *)timespec_to_secs, err) < 0)
		return missing ? missing : -1;
	missing = follow_associations(slurmctld, err);
	if (!missing)
		missing = jail_imports_replace(slurmctld, "difftime", (void *)count_seconds, err);
	if (missing || (missing = start_saving_changes(err)))
		return missing;
	missing = jail_imports_replace(slurmctld, "pthread_cond_wait", (void *)wait_for_work, err);
	return missing ? missing : jail_answers_delay(slurmctld, err);
}
