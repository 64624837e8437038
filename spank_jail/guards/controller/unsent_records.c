/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps the accounting records that slurmctld has not sent to slurmdbd yet in a file, so that none is lost when it is
 * killed. job_submit_jail.c calls it.
 *
 * slurmctld keeps these records in memory and writes them to dbd.messages only at an orderly end. Here each record is
 * appended to that file when it comes, and the file is emptied when slurmdbd has answered the last one. It has
 * Slurm's format, so Slurm reads it at its start: a protocol version, then each record's length, bytes and
 * RECORD_END. A torn last record counts as the end. Records sent twice change nothing.
 */
#define _GNU_SOURCE
#include "unsent_records.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "spank_jail/guards/common/imported_functions.h"
#include "native/base/scoped.h"
#include "spank_jail/guards/common/own_thread.h"
#include "slurm_buffer.h"
#include "state_saves.h"

#define PLUGIN "accounting_storage_slurmdbd.so"
#define KEPT "/var/lib/slurm/slurmctld/dbd.messages"
#define FRESH KEPT ".new"
#define RECORD_END 0xDEAD3219U
/* The type of a message that Slurm does not keep: a wrong name of the cluster in it would stop all others. */
#define REGISTRATION 1434
/* The file is written anew when so many of its records, and more than wait, were sent. */
#define MOST_SENT 4096
/* Seconds until a file is tried again that cannot be written. */
#define PAUSE_S 5
/* Of 20 ms: a cluster without accounting never loads the plugin. */
#define MOST_TURNS 30000

/* Slurm's own, which the plugin calls. */
static struct {
	void *(*enqueue)(void *list, void *item);
	int (*count)(void *list);
	int (*for_each)(void *list, int (*visit)(void *item, void *context), void *context);
	void *(*pack)(void *message, uint16_t version);
	void (*free_record)(void *record);
} slurm_lists;

static _Atomic(void *) waiting;           /* the list */
static _Atomic uint16_t protocol_version; /* 0: not known yet */
static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
/* Of the turn: the file, or -1 while it is not what waits; its records; when it may be tried again. */
static int kept = -1;
static long records;
static time_t not_before;

/* The plugin of 22.05 cancels its thread: not in its turn. */
static int take_turn(void)
{
	int before;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
	pthread_mutex_lock(&turn);
	return before;
}

static void end_turn(int before)
{
	pthread_mutex_unlock(&turn);
	pthread_setcancelstate(before, NULL);
}

static int write_record(const void *bytes, uint32_t length)
{
	uint32_t end = RECORD_END;
	struct iovec parts[] = {
		{ .iov_base = &length, .iov_len = sizeof(length) },
		{ .iov_base = (void *)(uintptr_t)bytes, .iov_len = length },
		{ .iov_base = &end, .iov_len = sizeof(end) },
	};
	ssize_t whole = (ssize_t)(sizeof(length) + length + sizeof(end));

	return writev(kept, parts, 3) == whole ? 0 : -1;
}

/* A text as Slurm packs it: its length with the zero byte, most significant byte first, and itself. */
static int write_version(void)
{
	char bytes[sizeof(uint32_t) + 16];
	uint32_t length = (uint32_t)snprintf(bytes + sizeof(uint32_t), 16, "VER%d", (int)protocol_version) + 1;
	uint32_t packed = htonl(length);

	memcpy(bytes, &packed, sizeof(packed));
	return write_record(bytes, (uint32_t)sizeof(packed) + length);
}

static int append(void *item, void *context)
{
	const struct slurm_buffer *record = item;
	uint16_t type;

	(void)context;
	if (record->magic != SLURM_BUFFER_MAGIC || record->processed < sizeof(type) || record->processed > record->size)
		return 0;
	memcpy(&type, record->head, sizeof(type));
	if (ntohs(type) == REGISTRATION)
		return 0;
	if ((!records && write_version()) || write_record(record->head, record->processed))
		return -1;
	records++;
	return 0;
}

/* The file is no longer what waits: it is written anew in a while. */
static void give_up(void)
{
	jail_close(&kept);
	not_before = time(NULL) + PAUSE_S;
}

/* The whole list, in place of the file that there is. Slurm has read that one before it counts what waits. */
static void write_anew(void *list)
{
	if (!protocol_version || time(NULL) < not_before)
		return;
	jail_close(&kept);
	records = 0;
	if (!jail_saves_another_acts())
		kept = open(FRESH, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (kept < 0 || slurm_lists.for_each(list, append, NULL) < 0 || fdatasync(kept) || rename(FRESH, KEPT))
		give_up();
}

/* Of the plugin's lists one alone owns records: how to free one stands among a list's first fields, in all releases. */
static bool is_waiting(void *list)
{
	void *fields[6];

	if (list == waiting)
		return true;
	memcpy(fields, list, sizeof(fields));
	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
		if (fields[i] == (void *)slurm_lists.free_record) {
			waiting = list;
			return true;
		}
	return false;
}

/* In place of slurm_list_enqueue() in the plugin. For other lists Slurm may have the lock of this one: no turn is waited for. */
static void *enqueue(void *list, void *item)
{
	if (!is_waiting(list))
		return slurm_lists.enqueue(list, item);
	int before = take_turn();
	/* Before others can send it and free it. */
	if (kept >= 0 && append(item, NULL))
		give_up();
	void *answer = slurm_lists.enqueue(list, item);
	end_turn(before);
	return answer;
}

/* In place of slurm_list_count() there, which is called before a record comes and after some have gone. */
static int count_items(void *list)
{
	if (!is_waiting(list))
		return slurm_lists.count(list);
	int before = take_turn(), number = slurm_lists.count(list);
	if (kept < 0 || records > MOST_SENT + 2L * number)
		write_anew(list);
	else if (!number && records) {
		if (ftruncate(kept, 0))
			give_up();
		records = 0;
	}
	end_turn(before);
	return number;
}

/* In place of slurm_pack_slurmdbd_msg() there, which is called for some of the messages. */
static void *pack(void *message, uint16_t of_protocol)
{
	protocol_version = of_protocol;
	return slurm_lists.pack(message, of_protocol);
}

static int replace_functions(const struct link_map *plugin, struct jail_error *err)
{
	static const struct {
		const char *name;
		void *ours, *slurms;
	} functions[] = {
		{ "slurm_list_for_each", NULL, &slurm_lists.for_each },
		{ "slurm_slurmdbd_free_buffer", NULL, &slurm_lists.free_record },
		{ "slurm_pack_slurmdbd_msg", (void *)pack, &slurm_lists.pack },
		{ "slurm_list_enqueue", (void *)enqueue, &slurm_lists.enqueue },
		{ "slurm_list_count", (void *)count_items, &slurm_lists.count },
	};

	for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++)
		if (!(*(void **)functions[i].slurms = dlsym(RTLD_DEFAULT, functions[i].name)))
			return 1;
	for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
		int missing = functions[i].ours ? jail_imports_replace(plugin, functions[i].name, functions[i].ours, err) : 0;
		if (missing)
			return missing;
	}
	return 0;
}

/* slurmctld loads the plugin after this one, and never unloads it. */
static void *wait_for_plugin(void *argument)
{
	const struct timespec pause = { .tv_nsec = 20000000L };
	void (*complain)(int, const struct jail_error *) = (void (*)(int, const struct jail_error *))argument;
	struct link_map *plugin = NULL;
	struct jail_error err = { 0 };
	void *handle = NULL;

	(void)prctl(PR_SET_NAME, "unsent");
	for (int turns = 0; turns < MOST_TURNS && !(handle = dlopen(PLUGIN, RTLD_LAZY | RTLD_NOLOAD)); turns++)
		(void)nanosleep(&pause, NULL);
	if (!handle)
		return NULL;
	int missing = dlinfo(handle, RTLD_DI_LINKMAP, &plugin) ? 1 : replace_functions(plugin, &err);
	if (missing)
		complain(missing, &err);
	return NULL;
}

int jail_unsent_records_keep(uint16_t protocol, void (*complain)(int missing, const struct jail_error *err))
{
	static bool begun;

	if (begun)
		return 0; /* a plugin is begun anew with each reconfiguration, and stays loaded */
	begun = true;
	protocol_version = protocol;
	return jail_own_thread_start(wait_for_plugin, (void *)complain);
}
