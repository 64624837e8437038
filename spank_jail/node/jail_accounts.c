/* SPDX-License-Identifier: Apache-2.0 */
/* jail-accounts: keeps a checked copy of the jail's accounts on a controller or login node, for the NSS module
 * libnss-extrausers. These nodes run it.
 *
 * slurmctld and sshd must not read the jail's /etc themselves, for its users write it: a FIFO there would make them
 * wait for ever, and a line could add somebody to the node's own groups. docs/decisions/jail-accounts.md has the
 * rules.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <getopt.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "native/base/clock.h"
#include "native/base/sys.h"
#include "account_copy.h"

#define PROGRAM "jail-accounts"
/* A change is to be there within two seconds: seen by one look, and unchanged at the next. */
#define LOOK_MS 400
#define SETTLE_MS 150
/* What the kernel tells of is complete: a file took its place or was closed. useradd does so with one after the other. */
#define SETTLE_TOLD_MS 40
/* A copy is made no more often, however often the jail's people change a file. */
#define APART_MS 200
/* More than the kernel's queue of events holds. */
#define MAX_READS 256
/* Looks that a file may go on changing before it is read all the same. */
#define MAX_UNSETTLED 4
/* Seconds after which a copy that failed is tried again though nothing changed: there may be room now. */
#define RETRY_S 5
/* Seconds between two lines of one kind: the jail's people decide how often there is something to say. */
#define SAY_EVERY_S 10
/* Seconds after which what is still wrong is said again. */
#define SAY_AGAIN_S 600

enum { STATUS_FAILED = 1, STATUS_USAGE = 2 };

static const char usage_text[] =
	"usage: jail-accounts [--once] [OPTIONS]\n"
	"\n"
	"Copies the accounts of the jail's ordinary users and groups to this node, checked, and again\n"
	"within two seconds of each change. What is unusable leaves the last copy in place.\n"
	"\n"
	"  --once        make one copy and end\n"
	"  --etc DIR     the jail's /etc (default /mnt/jail-etc)\n"
	"  --jail DIR    the jail's root, whose etc is taken; in place of --etc\n"
	"  --target DIR  where passwd, group and shadow are written (default /var/lib/extrausers)\n"
	"  --own DIR     passwd and group of this node, whose names and ids are never taken (default /etc)\n"
	"  --help        this text\n"
	"\n"
	"Exit status: 0 the copy was made (--once), 1 it could not be made, 2 wrong usage.\n";

struct said {
	char line[1400];
	time_t at;    /* of a line that was printed; 0: none */
	bool printed;    /* the present state was printed */
};

static time_t now_s(void)
{
	/* Never 0, which means never. */
	return clock_s() + 1;
}

/* One line, when it is news and the last one is long enough ago. */
static void say(struct said *said, const char *line)
{
	time_t now = now_s();
	bool news = !said->printed || strcmp(said->line, line);

	if (said->at && now - said->at < (news ? SAY_EVERY_S : SAY_AGAIN_S))
		return;
	fprintf(stderr, PROGRAM ": %s\n", line);
	snprintf(said->line, sizeof(said->line), "%s", line);
	said->at = now;
	said->printed = true;
}

/* Text of the jail is never printed: reasons are constants, lines are numbers. */
static void say_refused(struct said *said, const struct accounts_refused *refused)
{
	char line[1200] = "";
	size_t length = 0;

	for (enum accounts_file which = 0; which < ACCOUNTS_N_FILES; which++)
		if (refused[which].n)
			length += (size_t)snprintf(line + length, sizeof(line) - length, "%s%s of the jail: %zu left out, "
						   "the first is line %zu: %s", length ? "; " : "",
						   accounts_file_name(which), refused[which].n, refused[which].line,
						   refused[which].reason);
	if (length)
		say(said, line);
	else
		said->printed = false;
}

static int usage_error(const char *what)
{
	fprintf(stderr, PROGRAM ": %s; see " PROGRAM " --help\n", what);
	return STATUS_USAGE;
}

/* -1: go on, else the exit status. */
static int parse_arguments(int argc, char **argv, struct accounts_request *request, bool *once)
{
	static const struct option options[] = {
		{ "once", no_argument, NULL, '1' },	    { "etc", required_argument, NULL, 'e' },
		{ "jail", required_argument, NULL, 'j' },   { "target", required_argument, NULL, 't' },
		{ "own", required_argument, NULL, 'o' },    { "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	int option;

	while ((option = getopt_long(argc, argv, "h", options, NULL)) != -1) {
		switch (option) {
		case '1': *once = true; break;
		case 'e': request->etc = optarg; break;
		case 'j': request->jail = optarg; break;
		case 't': request->target = optarg; break;
		case 'o': request->own = optarg; break;
		case 'h': fputs(usage_text, stdout); return 0;
		default: return usage_error("wrong option");
		}
	}
	return optind < argc ? usage_error("it takes options only") : -1;
}

/* Stays root, who owns the copies: root in the jail can become any other user, and what that user owns outside is then
 * his (sbcast). But without a capability, and no program gives it one. Not dumpable, so that root in the jail, who has
 * more capabilities than this, can enter neither its memory nor its /proc/PID/root. The group is for the copy of shadow. */
static int drop_rights(long shadow_gid)
{
	const uint32_t none[2] = { 0, 0 };
	gid_t group = (gid_t)shadow_gid;

	if (geteuid())
		return 0;
	if (setgroups(shadow_gid < 0 ? 0 : 1, &group) || sys_prctl(PR_SET_NO_NEW_PRIVS, 1) ||
	    sys_capset(none, none, none) || sys_prctl(PR_SET_DUMPABLE, 0)) {
		fprintf(stderr, PROGRAM ": rights cannot be dropped: %s; it needs SETGID\n", strerror(errno));
		return -1;
	}
	return 0;
}

static void wait_ms(long ms)
{
	const struct timespec time = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 };

	nanosleep(&time, NULL);
}

static int copy(const struct accounts_request *request, struct said *failure, struct said *refusal)
{
	struct accounts_refused refused[ACCOUNTS_N_FILES];
	struct jail_error err = { 0 };
	char line[1400], text[1200];

	if (accounts_copy(request, refused, &err)) {
		jail_error_format(&err, text, sizeof(text));
		snprintf(line, sizeof(line), "the jail's accounts are not copied, what was copied last stays: %s", text);
		say(failure, line);
		return -1;
	}
	if (failure->printed) {
		fprintf(stderr, PROGRAM ": the jail's accounts are copied again\n");
		failure->printed = false;
	}
	say_refused(refusal, refused);
	return 0;
}

/* Waits for that long, or until the kernel tells of a change; returns whether it did. */
static bool wait_for_change(const struct accounts_watch *watch, int ms)
{
	struct pollfd told = { .fd = watch->fd, .events = POLLIN };
	char events[4096];

	if (poll(&told, 1, ms) <= 0)
		return false;
	for (int i = 0; i < MAX_READS && read(watch->fd, events, sizeof(events)) > 0; i++)
		;
	return true;
}

/* For ever. A change is taken when it holds from one look to the next: what writes a file in place is then done. */
static _Noreturn void follow(const struct accounts_request *request)
{
	struct said failure = { 0 }, refusal = { 0 };
	struct accounts_state copied = { 0 }, seen = { 0 }, now;
	/* -1, where the machine has no more of them: poll(2) then waits for the time alone. */
	struct accounts_watch watch = { .fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK), .id = -1 };
	unsigned unsettled = 0;
	time_t retry_at = now_s();
	bool told = false;

	for (;;) {
		accounts_watch(request, &watch);
		accounts_look(request, &now);
		bool settled = accounts_unchanged(&seen, &now);
		bool due = !accounts_unchanged(&copied, &now) || (retry_at && now_s() >= retry_at);
		if (due && (settled || ++unsettled >= MAX_UNSETTLED)) {
			retry_at = copy(request, &failure, &refusal) ? now_s() + RETRY_S : 0;
			/* What still changes is copied again when it no longer does. */
			copied = settled ? now : (struct accounts_state){ 0 };
			unsettled = 0;
			due = false;
			wait_ms(APART_MS);
		}
		seen = now;
		if (told || due)
			wait_ms(told ? SETTLE_TOLD_MS : SETTLE_MS);
		told = !due && wait_for_change(&watch, LOOK_MS);
	}
}

int main(int argc, char **argv)
{
	struct accounts_request request = {
		.etc = "/mnt/jail-etc", .target = "/var/lib/extrausers", .own = "/etc",
	};
	struct said failure = { 0 }, refusal = { 0 };
	bool once = false;
	int status = parse_arguments(argc, argv, &request, &once);

	if (status >= 0)
		return status;
	/* Who reads the log may end before. */
	signal(SIGPIPE, SIG_IGN);
	request.shadow_gid = accounts_shadow_gid(request.own);
	if (drop_rights(request.shadow_gid))
		return STATUS_FAILED;
	if (once)
		return copy(&request, &failure, &refusal) ? STATUS_FAILED : 0;
	follow(&request);
}
