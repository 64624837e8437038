/* SPDX-License-Identifier: Apache-2.0 */
/* srun with this library in LD_PRELOAD changes what it tells slurmd to launch, before it is signed with the user's own
 * credential. LAUNCH_JOB=1: it is for a job that there is none of. LAUNCH_AT=N: three bytes at N, from the end if below 0, are 0xff.
 * CLEAR_NUMBER=N: where a submission has this number, in two bytes, it has 0, which is told.
 * squeue with it: ASK_JOBS=N: where it asks for all jobs, it asks N times for the job of the number ASK_JOB.
 * NO_FIGURES=1: srun takes its step for refused and says that it is over, with figures of what it has used, of no kind of resource.
 * PACK_FOR=TEXT, PACKED=TEXT: each text that begins with the one is replaced by the other, in all that is sent.
 * HEADER_FLAGS=N: the headers of all messages have these flags, too, and those of answers are told.
 * sbcast --compress=lz4 with it sends a block that becomes EXPAND_TO bytes. LEAVE_OPEN=N: it sends the first N times, and no more.
 * sbatch with it submits one job after the other: SUBMIT_UP_TO=N: of each, another byte is 0xff, those from 0 to N. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define REQUEST_LAUNCH_TASKS 6001
#define REQUEST_SUBMIT_BATCH_JOB 4003
/* The job's number is one of the first fields; later ones are of the credential. */
#define FIRST_FIELDS 64
/* In the place of a number in messages: there is none. */
#define NO_NUMBER 0xfffffffeU
/* A question for all jobs: a time, flags and how many are named. */
#define LONGEST_QUESTION 32
/* For slurmctld's answer, if it has one. */
#define ANSWER_S 4
#define AT_A_TIME 8

typedef int (*submit)(void *job, void **answer);
typedef int (*hash)(char *body, int length, char *kind, int kind_length, void *result);

static void name_no_job(char *body, int length)
{
	const char *job = getenv("SLURM_JOB_ID");
	uint32_t number = job ? __builtin_bswap32((uint32_t)strtoul(job, NULL, 10)) : 0;

	for (int i = 0; i + 4 <= length && i < FIRST_FIELDS; i++)
		if (!memcmp(body + i, &number, sizeof(number))) {
			memcpy(body + i, "\x00\xff\xff\xff", 4);
			return;
		}
}

/* Where the byte is that this process changes in what it submits; -1: nowhere. */
static int submit_at = -1;

/* sbatch calls it, with all read and loaded that takes the time of a submission: each is a fork from here. */
int slurm_submit_batch_job(void *job, void **answer);
int slurm_submit_batch_job(void *job, void **answer)
{
	submit own = (submit)dlsym(RTLD_NEXT, "slurm_submit_batch_job");
	const char *up_to = getenv("SUBMIT_UP_TO");

	if (!up_to)
		return own(job, answer);
	for (int at = 0; at <= atoi(up_to); at++) {
		pid_t child = fork();
		if (child < 0)
			_exit(1);
		if (!child) {
			submit_at = at;
			alarm(ANSWER_S);
			own(job, answer);
			_exit(0);
		}
		waitpid(child, NULL, 0);
	}
	_exit(0);
}

/* Slurm's buffer, as it begins. */
struct buffer {
	uint32_t magic;
	char *text;
	uint32_t size, used;
};

typedef int (*pack_body)(void *message, struct buffer *buffer);
typedef void (*pack_number)(uint32_t number, struct buffer *buffer);

/* Slurm calls it for the body of each message. */
int pack_msg(void *message, struct buffer *buffer);
int pack_msg(void *message, struct buffer *buffer)
{
	pack_body own = (pack_body)dlsym(RTLD_NEXT, "pack_msg");
	pack_number add = (pack_number)dlsym(RTLD_NEXT, "pack32");
	const char *jobs = getenv("ASK_JOBS"), *job = getenv("ASK_JOB");
	uint32_t before = buffer->used, count;
	int result = own(message, buffer);
	const uint32_t size = buffer->used - before;

	if (!jobs || !job || size < sizeof(count) || size > LONGEST_QUESTION)
		return result;
	memcpy(&count, buffer->text + buffer->used - sizeof(count), sizeof(count));
	if (__builtin_bswap32(count) != NO_NUMBER)
		return result;
	buffer->used -= sizeof(count);
	add((uint32_t)atoi(jobs), buffer);
	for (int i = 0; i < atoi(jobs); i++)
		add((uint32_t)atoi(job), buffer);
	return result;
}

typedef void (*pack)(void *header, void *buffer);
typedef int (*unpack)(void *header, void *buffer);

/* Slurm calls these for the header of each message; the version comes first, and then the flags. */
void pack_header(uint16_t *header, void *buffer);
void pack_header(uint16_t *header, void *buffer)
{
	pack own = (pack)dlsym(RTLD_NEXT, "pack_header");
	const char *flags = getenv("HEADER_FLAGS");

	header[1] |= (uint16_t)(flags ? atoi(flags) : 0);
	own(header, buffer);
}

int unpack_header(uint16_t *header, void *buffer);
int unpack_header(uint16_t *header, void *buffer)
{
	unpack own = (unpack)dlsym(RTLD_NEXT, "unpack_header");
	int result = own(header, buffer);

	if (getenv("HEADER_FLAGS"))
		fprintf(stderr, "flags of the answer: %u\n", header[1]);
	return result;
}

static void clear_number(char *body, int length)
{
	const char *given = getenv("CLEAR_NUMBER");
	uint16_t number = __builtin_bswap16((uint16_t)(given ? atoi(given) : 0));

	for (int i = 0; given && i + 2 <= length; i++)
		if (!memcmp(body + i, &number, sizeof(number))) {
			memset(body + i, 0, sizeof(number));
			fprintf(stderr, "cleared at %d\n", i);
		}
}

typedef void (*pack_figures)(void *figures, uint16_t version, uint16_t protocol, void *buffer);
typedef void *(*make_figures)(void *task);

/* Slurm calls it for what a step has used. srun knows no kinds of resources. */
void jobacctinfo_pack(void *figures, uint16_t version, uint16_t protocol, void *buffer);
void jobacctinfo_pack(void *figures, uint16_t version, uint16_t protocol, void *buffer)
{
	pack_figures own = (pack_figures)dlsym(RTLD_NEXT, "jobacctinfo_pack");
	make_figures make = (make_figures)dlsym(RTLD_NEXT, "jobacctinfo_create");

	if (getenv("NO_FIGURES") && !figures) {
		figures = make(NULL);
		fprintf(stderr, "figures of no kind\n");
	}
	own(figures, version, protocol, buffer);
}

typedef int (*read_answer)(int type, void *answer);

/* srun calls it for a node's answer to a launch. */
int slurm_get_return_code(int type, void *answer);
int slurm_get_return_code(int type, void *answer)
{
	read_answer own = (read_answer)dlsym(RTLD_NEXT, "slurm_get_return_code");

	return getenv("NO_FIGURES") ? 1 : own(type, answer);
}

typedef void (*pack_memory)(void *text, uint32_t size, void *buffer);

/* Slurm calls it for each text, whose size counts the zero at its end. */
void packmem(void *text, uint32_t size, void *buffer);
void packmem(void *text, uint32_t size, void *buffer)
{
	pack_memory own = (pack_memory)dlsym(RTLD_NEXT, "packmem");
	const char *old = getenv("PACK_FOR"), *new = getenv("PACKED");

	if (old && new && text && size > strlen(old) && !memcmp(text, old, strlen(old))) {
		char *copy = strdup(new);
		own(copy, (uint32_t)strlen(new) + 1, buffer);
		free(copy);
		return;
	}
	own(text, size, buffer);
}

/* Slurm calls it with the body of each message. */
int hash_g_compute(char *body, int length, char *kind, int kind_length, void *result);
int hash_g_compute(char *body, int length, char *kind, int kind_length, void *result)
{
	hash own = (hash)dlsym(RTLD_NEXT, "hash_g_compute");
	const char *at = getenv("LAUNCH_AT");
	uint16_t type = 0;

	if (kind_length == sizeof(type))
		memcpy(&type, kind, sizeof(type));
	if (type == REQUEST_LAUNCH_TASKS || __builtin_bswap16(type) == REQUEST_LAUNCH_TASKS) {
		int place = at ? atoi(at) : 0;
		place += place < 0 ? length : 0;
		if (getenv("LAUNCH_JOB"))
			name_no_job(body, length);
		if (at && place >= 0 && place + 3 <= length)
			memset(body + place, 0xff, 3);
	}
	if (type == REQUEST_SUBMIT_BATCH_JOB || __builtin_bswap16(type) == REQUEST_SUBMIT_BATCH_JOB) {
		clear_number(body, length);
		if (submit_at >= 0 && submit_at < length)
			body[submit_at] = (char)0xff;
	}
	return own(body, length, kind, kind_length, result);
}

/* Each a fork from here, which ends before its second block. */
static void send_often(int times)
{
	static bool sent;

	if (sent)
		_exit(0);
	sent = true;
	for (int running = 0; times; times--, running++) {
		pid_t child = fork();
		if (!child)
			return;
		if (child < 0)
			_exit(1);
		if (running >= AT_A_TIME)
			(void)wait(NULL);
	}
	while (wait(NULL) > 0)
		;
	_exit(0);
}

/* In place of LZ4's: a block of zeros, by one match that goes on and on, and five literals at its end. */
int LZ4_compress_destSize(const char *from, char *block, int *size, int room)
{
	const char *most = getenv("EXPAND_TO");
	long all = most ? atol(most) : 0, rest = all - 1 - 5 - 4 - 15;
	char *end = block;

	(void)from;
	if (getenv("LEAVE_OPEN"))
		send_often(atoi(getenv("LEAVE_OPEN")));
	if (rest < 0 || rest / 255 + 16 > room)
		return 0;
	memcpy(end, "\x1f\0\1\0", 4);
	memset(end + 4, 0xff, (size_t)(rest / 255));
	end += 4 + rest / 255;
	*end++ = (char)(rest % 255);
	*end++ = 0x50;
	memset(end, 0, 5);
	*size = (int)all;
	return (int)(end + 5 - block);
}
