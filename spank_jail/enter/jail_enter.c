/* SPDX-License-Identifier: Apache-2.0 */
/* jail-enter: runs a command in the jail, or with --check and --print says what would be mounted. Administrators run
 * it, and pyxis does.
 *
 * Exit status: that of the command; 127 command not found, 126 not executable, 125 the jail could not be entered, 2
 * wrong usage. --check and --print: 0, or 1 when something is wrong.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "native/jail/confine.h"
#include "native/jail/enter.h"
#include "native/jail/signal_proxy.h"
#include "native/jail/pid_namespace.h"
#include "native/base/scoped.h"
#include "native/seccomp/seccomp.h"
#include "native/base/trust.h"
#include "native/base/accounts.h"
#include "print.h"
#include "terminal.h"

#define PROGRAM "jail-enter"
#define SEARCH_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

enum { STATUS_WRONG = 1, STATUS_USAGE = 2, STATUS_NO_JAIL = 125, STATUS_NO_EXEC = 126, STATUS_NO_COMMAND = 127 };

struct request {
	const char *root, *plan, *user, *directory, *init, *share;
	enum jail_level level;
	unsigned allow; /* JAIL_ALLOW_* */
	bool check, print;
	char **command; /* NULL: the user's shell, as a login shell */
	int terminal;   /* of jail_terminal_fork, or -1 */
};

static const char usage_text[] =
	"usage: jail-enter [OPTIONS] [--] [CMD [ARGS...]]\n"
	"\n"
	"Runs CMD in the jail; without CMD, the user's shell as a login shell.\n"
	"\n"
	"  --root DIR    the directory that becomes / (default /mnt/jail/root)\n"
	"  --plan FILE   the mount plan (default /etc/cellblock/jail.fstab)\n"
	"  --user USER   become this user of the jail's own /etc/passwd (a name or a uid)\n"
	"  --level LEVEL how far it is cut off from the node: filesystem, capabilities (default),\n"
	"                pid: CMD and what it starts see and signal each other alone\n"
	"  --allow CALLS system calls that the filter leaves alone: perf_event_open\n"
	"  --init FILE   program that is init of the PID namespace (default " JAIL_PID_INIT ")\n"
	"  --chdir DIR   working directory in the jail (default: the user's home, or /)\n"
	"  --check       build the jail and drop it again; say what is wrong or left out\n"
	"  --share-pids  make the PID namespace that the node's jobs and sessions share, at " JAIL_PID_SHARED "\n"
	"  --print       print the plan as it was understood; needs no root\n"
	"  --help        this text\n"
	"\n"
	"Exit status: that of CMD; 127 CMD not found, 126 not executable, 125 the jail could not be entered,\n"
	"2 wrong usage. --check and --print: 0, or 1 when something is wrong.\n";

static int complain(const struct jail_error *err, int status)
{
	char line[1400];

	fprintf(stderr, PROGRAM ": %s\n", jail_error_format(err, line, sizeof(line)));
	return status;
}

static void notice(void *context, const char *text)
{
	(void)context;
	fprintf(stderr, PROGRAM ": %s\n", text);
}

static int usage_error(const char *what)
{
	fprintf(stderr, PROGRAM ": %s; see " PROGRAM " --help\n", what);
	return STATUS_USAGE;
}

static int set_allow(const char *names, struct request *request)
{
	struct jail_error err;

	return jail_seccomp_allow(names, &request->allow, &err) ? usage_error(err.message) : -1;
}

static int set_level(const char *name, enum jail_level *level)
{
	return jail_level_parse(name, level) ? usage_error("--level takes filesystem, capabilities or pid") : -1;
}

/* -1: go on, else the exit status. */
static int parse_arguments(int argc, char **argv, struct request *request)
{
	static const struct option options[] = {
		{ "root", required_argument, NULL, 'r' },  { "plan", required_argument, NULL, 'p' },
		{ "user", required_argument, NULL, 'u' },  { "chdir", required_argument, NULL, 'd' },
		{ "level", required_argument, NULL, 'l' }, { "init", required_argument, NULL, 'i' },
		{ "allow", required_argument, NULL, 'a' }, { "check", no_argument, NULL, 'c' },
		{ "share-pids", no_argument, NULL, 's' },
		{ "print", no_argument, NULL, 'P' },       { "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	int option, status;

	*request = (struct request){
		.root = "/mnt/jail/root",
		.plan = "/etc/cellblock/jail.fstab",
		.level = JAIL_LEVEL_CAPABILITIES,
		.init = JAIL_PID_INIT,
	};
	/* "+": stop at CMD, its options are its own. */
	while ((option = getopt_long(argc, argv, "+h", options, NULL)) != -1) {
		switch (option) {
		case 'r': request->root = optarg; break;
		case 'p': request->plan = optarg; break;
		case 'u': request->user = optarg; break;
		case 'd': request->directory = optarg; break;
		case 'l':
			if ((status = set_level(optarg, &request->level)) >= 0)
				return status;
			break;
		case 'a':
			if ((status = set_allow(optarg, request)) >= 0)
				return status;
			break;
		case 'i': request->init = optarg; break;
		case 'c': request->check = true; break;
		case 's': request->share = JAIL_PID_SHARED; break;
		case 'P': request->print = true; break;
		case 'h': fputs(usage_text, stdout); return 0;
		default: return usage_error("wrong option");
		}
	}
	if (request->directory && request->directory[0] != '/')
		return usage_error("--chdir takes an absolute path in the jail");
	if ((request->check || request->print) && optind < argc)
		return usage_error("--check and --print take no CMD");
	request->command = optind < argc ? argv + optind : NULL;
	return -1;
}

/* A clean environment for another user: what describes the terminal and the language stays. */
static int set_environment(const struct jail_account *account)
{
	static const char *const kept[] = { "TERM", "COLORTERM", "LANG", "LANGUAGE", "LC_ALL", "TZ", NULL };
	char *values[sizeof(kept) / sizeof(kept[0])] = { NULL };

	for (size_t i = 0; kept[i]; i++) {
		const char *value = getenv(kept[i]);
		values[i] = value ? strdup(value) : NULL;
	}
	if (clearenv())
		return -1;
	for (size_t i = 0; kept[i]; i++)
		if (values[i] && setenv(kept[i], values[i], 1))
			return -1;
	return setenv("HOME", account->home, 1) || setenv("USER", account->name, 1) ||
	       setenv("LOGNAME", account->name, 1) || setenv("SHELL", account->shell, 1) ||
	       setenv("PATH", SEARCH_PATH, 1) ? -1 : 0;
}

/* What the plan's cdi lines set, over what is there: the strings become the environment's. */
static int add_environment(const struct jail_environment *environment, struct jail_error *err)
{
	for (size_t i = 0; i < environment->n; i++)
		if (putenv(environment->variables[i]))
			return jail_fail(err, "putenv", errno, "cannot set the environment of the plan's cdi lines");
	return 0;
}

static int become(const struct request *request, struct jail_account *account, struct jail_error *err)
{
	scoped_fd root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);

	if (root < 0)
		return jail_fail(err, "open", errno, "cannot open the jail's root");
	/* While root still has the rights to change its ids; execution will lose the rest. */
	if (jail_confine(request->level, err))
		return -1;
	if (!request->user) {
		/* As whoever we are, root: its shell is still asked of the jail, and it need not be there. */
		if (jail_account_find(root, "0", account, err))
			*account = (struct jail_account){ .name = "root", .home = "/", .shell = "/bin/sh" };
		return 0;
	}
	if (jail_account_find(root, request->user, account, err) ||
	    (request->terminal >= 0 && jail_terminal_give(account->uid, err)) || jail_account_become(account, err))
		return -1;
	if (set_environment(account))
		return jail_fail(err, "setenv", errno, "cannot set the environment");
	return 0;
}

static int go_to(const struct request *request, const struct jail_account *account, struct jail_error *err)
{
	if (request->directory) {
		if (!chdir(request->directory))
			return 0;
		jail_fail(err, "chdir", errno, "cannot enter the directory of --chdir in the jail");
		return jail_error_at(err, NULL, 0, request->directory);
	}
	/* A home that is not there yet must not keep anyone from logging in: login(1) does the same. */
	if ((request->user || !request->command) && chdir(account->home))
		fprintf(stderr, PROGRAM ": %s: cannot enter the home directory (%s); staying in /\n", account->home,
			strerrordesc_np(errno));
	return 0;
}

static int run(const struct request *request, const struct jail_account *account)
{
	char name[1026];

	/* Nothing of the outside goes along. */
	close_range(3, ~0U, 0);
	if (request->command) {
		execvp(request->command[0], request->command);
	} else {
		const char *slash = strrchr(account->shell, '/');
		snprintf(name, sizeof(name), "-%s", slash ? slash + 1 : account->shell);
		execl(account->shell, name, (char *)NULL);
	}
	int number = errno;
	fprintf(stderr, PROGRAM ": %s: cannot run it in the jail (%s)\n",
		request->command ? request->command[0] : account->shell, strerrordesc_np(number));
	return number == ENOENT ? STATUS_NO_COMMAND : STATUS_NO_EXEC;
}

static int print_plan(const struct request *request)
{
	struct jail_plan plan;
	struct jail_error err;

	if (jail_plan_read(request->plan, &plan, &err))
		return complain(&err, STATUS_WRONG);
	jail_print(stdout, &plan, request->level);
	jail_plan_free(&plan);
	return fflush(stdout) ? STATUS_WRONG : 0;
}

int main(int argc, char **argv)
{
	struct jail_error err;
	struct jail_account account;
	struct jail_environment environment;
	struct request request;
	int status = parse_arguments(argc, argv, &request);

	if (status >= 0)
		return status;
	if (request.print)
		return print_plan(&request);
	if (request.share)
		return jail_pid_share(request.share, request.init, &err) ? complain(&err, STATUS_WRONG) : 0;
	scoped_fd pids = jail_pid_shared(JAIL_PID_SHARED);
	const struct jail_entry_request entry = {
		.root = request.root, .plan = request.plan, .notice = notice, .level = request.level,
		.environment = &environment, .init = request.init, .pids = pids,
	};
	/* Before anything else: the relay stays outside as it is. */
	request.terminal = request.check ? -1 : jail_terminal_fork(&err);
	if (request.terminal < -1)
		return complain(&err, STATUS_NO_JAIL);
	if (jail_seccomp_prepare(request.allow, &err) || jail_enter(&entry, &err) ||
	    (request.terminal >= 0 && jail_terminal_open(request.terminal, &err)))
		return complain(&err, request.check ? STATUS_WRONG : STATUS_NO_JAIL);
	if (request.check)
		return jail_confine(request.level, &err) || jail_confine_final(request.level, &err)
		       ? complain(&err, STATUS_WRONG) : 0;
	if ((request.level >= JAIL_LEVEL_PID || pids >= 0) && jail_signal_proxy_fork(&err))
		return complain(&err, STATUS_NO_JAIL);
	if (become(&request, &account, &err) || add_environment(&environment, &err) ||
	    go_to(&request, &account, &err) || jail_confine_final(request.level, &err))
		return complain(&err, STATUS_NO_JAIL);
	return run(&request, &account);
}
