/* SPDX-License-Identifier: Apache-2.0 */
/* Checks services that the node depends on: a synchronised clock, name resolution, and Slurm's authentication (munge
 * or sackd). node_checks.c calls it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "native/base/program.h"
#include "native/base/scoped.h"
#include "native/base/text.h"

/* The first line of `scontrol show config`: the time at which slurmctld answered. */
#define AS_OF "Configuration data as of "
#define MOST_CONFIG (256 * 1024)

static char *controllers_config(void)
{
	char command[] = "scontrol", show[] = "show", config[] = "config";
	char *words[] = { command, show, config, NULL };
	scoped_buffer output = { 0 };
	const struct program program = { .arguments = words, .output = &output, .seconds = 8, .most = MOST_CONFIG, .quiet = false };

	setenv("SLURM_TIME_FORMAT", "%s", 1);
	if (program_run(&program, &(struct jail_error){ 0 }))
		return NULL;
	return output.text ? text_copy(output.text, output.length) : NULL;
}

int check_clock(void)
{
	const char *source = check_word("source", NULL);
	time_t before = time(NULL);
	scoped_free char *text = source ? check_read(source) : controllers_config();
	time_t after = time(NULL);
	long long most = (long long)check_number("most", 30), theirs, off = 0;

	char *line = text ? strstr(text, AS_OF) : NULL;
	if (!line)
		return check_could_not_run("slurmctld does not say what time it has");
	char *end;
	theirs = strtoll(line + sizeof(AS_OF) - 1, &end, 10);
	if (end == line + sizeof(AS_OF) - 1 || *end == '-')
		return check_could_not_run("slurmctld's time is no number: '%.20s'", line + sizeof(AS_OF) - 1);
	if (theirs < before)
		off = before - theirs;
	if (theirs > after)
		off = theirs - after;
	if (off > most)
		return check_failed("the clock is %lld s %s slurmctld's", off, theirs < before ? "ahead of" : "behind");
	return CHECK_PASSED;
}

static int resolve(char *name)
{
	const struct addrinfo hints = { .ai_socktype = SOCK_STREAM };
	struct addrinfo *found;

	name[strcspn(name, ":")] = 0;
	int fault = *name ? getaddrinfo(name, NULL, &hints, &found) : EAI_NONAME;
	if (!fault) {
		freeaddrinfo(found);
		return CHECK_PASSED;
	}
	if (fault == EAI_SYSTEM || fault == EAI_MEMORY || fault == EAI_FAIL)
		return check_could_not_run("%s: %s", name, gai_strerror(fault));
	return check_failed("the name %s is not resolved: %s", name, gai_strerror(fault));
}

int check_dns(void)
{
	scoped_free char *controllers = check_fact("controller");
	const char *more = check_word("names", "");
	scoped_free char *names = text_format("%s,%s", controllers ? controllers : "", more);
	char *rest = names, *name;
	int status = CHECK_PASSED, any = 0;

	check_fails_after((unsigned)check_number("answer", 6), "name servers do not answer\n");
	while (status == CHECK_PASSED && (name = strsep(&rest, ",")))
		if (*name) {
			any = 1;
			status = resolve(name);
		}
	return any ? status : check_could_not_run("no name to resolve is known");
}

/* munge(3), munge_encode(3). Opened at run time: its package is not there with auth/slurm. */
static int ask_munge(void)
{
	void *library = dlopen("libmunge.so.2", RTLD_NOW);
	int (*encode)(char **, void *, const void *, int) = NULL;
	int (*decode)(const char *, void *, void **, int *, uid_t *, gid_t *) = NULL;
	const char *(*reason)(int) = NULL;
	char *credential = NULL;
	void *data = NULL;
	int length = 0, fault;
	uid_t uid = (uid_t)-1;
	gid_t gid;

	if (library) {
		*(void **)&encode = dlsym(library, "munge_encode");
		*(void **)&decode = dlsym(library, "munge_decode");
		*(void **)&reason = dlsym(library, "munge_strerror");
	}
	if (!encode || !decode || !reason)
		return check_could_not_run("libmunge.so.2 cannot be opened");
	check_fails_after((unsigned)check_number("answer", 5), "munged does not answer\n");
	if ((fault = encode(&credential, NULL, NULL, 0)))
		return check_failed("munged makes no credential: %s", reason(fault));
	if ((fault = decode(credential, NULL, &data, &length, &uid, &gid)))
		return check_failed("munged does not take its own credential: %s", reason(fault));
	if (uid != geteuid())
		return check_failed("munged takes uid %u for %u", geteuid(), uid);
	return CHECK_PASSED;
}

static int ask_sack(void)
{
	char command[] = "/usr/lib/cellblock/sack-ask";
	const char *socket = check_word("socket", "/run/slurm/sack.socket");
	scoped_free char *path = text_copy(socket, strlen(socket));
	char *words[] = { command, path, NULL };
	scoped_buffer output = { 0 };
	const struct program program = { .arguments = words, .output = &output, .seconds = 6, .most = 4096 };

	/* slurmd serves it: before there is one, nobody does. */
	if (access("/run/slurmd.pid", F_OK) && access(path, F_OK))
		return check_could_not_run("slurmd has not started yet");
	if (access(command, X_OK))
		return check_could_not_run("%s: %s", command, strerrordesc_np(errno));
	int status = program_run(&program, &(struct jail_error){ 0 });
	if (status == 2 || status < 0)
		return check_failed("%s does not answer", path);
	scoped_free char *wanted = text_format("uid=%u ", geteuid());
	if (status || !output.text || !text_starts(output.text, wanted))
		return check_failed("%s does not say who asks", path);
	return CHECK_PASSED;
}

int check_auth(void)
{
	scoped_free char *auth = check_fact("auth");

	if (!auth)
		return check_could_not_run("what says to Slurm who asks is not known");
	return strcmp(auth, "slurm") ? ask_munge() : ask_sack();
}
