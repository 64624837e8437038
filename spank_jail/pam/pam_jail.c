/* SPDX-License-Identifier: Apache-2.0 */
/* PAM session module: puts a login session, and with it the shell, into the jail for good. sshd loads it.
 *
 *   session required pam_jail.so root=/mnt/jail/root plan=/etc/cellblock/jail.fstab level=capabilities
 *
 * Where the jail is for some only, jail-users= and jail-groups= say whose sessions enter it, as in plugstack.conf,
 * and jail-jobs=yes that a session on a worker does as the user's jobs there do, root's excepted; who is in neither
 * stays outside. Nobody becomes root inside then.
 *
 * As the last session line: modules after it would be looked for inside the jail. Any failure denies the session;
 * nobody gets a shell outside by accident.
 *
 * From level capabilities on, the daemon's process of this session (sshd's monitor) is cut for good, and not only the
 * shell: it goes on as root within the jail and may load an NSS module or a library from there, which its users
 * write. What is left to it is enough to open a terminal, to write lastlog and wtmp, to become the user and to end
 * the session. It is not enough for other modules' pam_close_session to mount or unmount (pam_namespace, pam_mount).
 */
#define _GNU_SOURCE
#include <pwd.h>
#include <security/pam_ext.h>
#include <security/pam_modules.h>
#include <security/pam_modutil.h>
#include <string.h>
#include <syslog.h>

#include "native/jail/confine.h"
#include "native/jail/enter.h"
#include "native/jail/pid_namespace.h"
#include "native/base/scoped.h"
#include "native/seccomp/seccomp.h"
#include "spank_jail/job/outside_marks.h"
#include "spank_jail/options/selection.h"

#define EXPORT __attribute__((visibility("default")))

static void notice(void *context, const char *text)
{
	pam_syslog(context, LOG_INFO, "%s", text);
}

static int set_level(const char *name, enum jail_level *level, struct jail_error *err)
{
	if (jail_level_parse(name, level))
		return jail_fail(err, NULL, 0, "unknown level \"%s\" in the PAM configuration; known: filesystem, "
				 "capabilities", name);
	if (*level == JAIL_LEVEL_PID)
		return jail_fail(err, NULL, 0, "level=pid cannot be had here: sshd's own process goes on in the jail, "
				 "and a process never changes its PID namespace; use level=capabilities");
	return 0;
}

struct choice {
	struct jail_selection only;
	bool as_jobs; /* jail-jobs=yes */
};

/* 1: it is about something else. */
static int parse_choice(const char *argument, struct choice *choice, struct jail_error *err)
{
	if (!strcmp(argument, "jail-jobs=yes")) {
		choice->as_jobs = true;
		return 0;
	}
	return strncmp(argument, "jail-users=", 11) && strncmp(argument, "jail-groups=", 12)
	       ? 1 : jail_selection_parse(&choice->only, argument, err);
}

static int parse_arguments(int argc, const char **argv, struct jail_entry_request *request, struct choice *choice,
			   struct jail_error *err)
{
	unsigned allow = 0;

	for (int i = 0; i < argc; i++) {
		int chosen = parse_choice(argv[i], choice, err);
		if (chosen < 0)
			return -1;
		if (!chosen)
			continue;
		if (!strncmp(argv[i], "root=/", 6))
			request->root = argv[i] + 5;
		else if (!strncmp(argv[i], "plan=/", 6))
			request->plan = argv[i] + 5;
		else if (!strncmp(argv[i], "allow=", 6)) {
			if (jail_seccomp_allow(argv[i] + 6, &allow, err))
				return -1;
		} else if (strncmp(argv[i], "level=", 6))
			return jail_fail(err, NULL, 0, "unknown argument \"%s\" in the PAM configuration; known: "
					 "root=/PATH, plan=/PATH, level=LEVEL, allow=CALL, jail-users=, jail-groups=, jail-jobs=yes", argv[i]);
		else if (set_level(argv[i] + 6, &request->level, err))
			return -1;
	}
	return jail_seccomp_prepare(allow, err);
}

/* Whether the session of whom PAM let in is to stay outside. */
static int decide(pam_handle_t *pam, const struct choice *choice, bool *outside, struct jail_error *err)
{
	const struct passwd *user;
	const char *name = NULL;

	if (!choice->as_jobs && !jail_selection_is_given(&choice->only))
		return 0;
	if (pam_get_user(pam, &name, NULL) != PAM_SUCCESS || !name || !(user = pam_modutil_getpwnam(pam, name)))
		return jail_fail(err, NULL, 0, "this node does not know the user \"%s\", and so not whether the session belongs in the jail",
				 name ? name : "");
	/* root looks after the node, and has no jobs here. */
	*outside = !jail_selection_names_user(&choice->only, user->pw_uid, user->pw_gid, NULL, 0) &&
		   (!choice->as_jobs || !user->pw_uid || jail_outside_is_all(user->pw_uid));
	return 0;
}

/* To the log for the administrator and to the person who logs in, who can quote it. */
static int refuse(pam_handle_t *pam, int flags, const struct jail_error *err)
{
	char line[1400];

	jail_error_format(err, line, sizeof(line));
	pam_syslog(pam, LOG_ERR, "session refused: %s", line);
	if (!(flags & PAM_SILENT))
		pam_error(pam, "pam_jail: %s", line);
	return PAM_SESSION_ERR;
}

EXPORT int pam_sm_open_session(pam_handle_t *pam, int flags, int argc, const char **argv)
{
	struct jail_entry_request request = {
		.root = "/mnt/jail/root",
		.plan = "/etc/cellblock/jail.fstab",
		.notice = notice,
		.context = pam,
		.level = JAIL_LEVEL_CAPABILITIES,
	};
	struct choice choice = { 0 };
	struct jail_environment environment;
	struct jail_error err;
	bool outside = false;
	int result = PAM_SUCCESS;
	/* The daemon's own process stays outside of it, what it starts is inside. */
	scoped_fd pids = jail_pid_shared(JAIL_PID_SHARED);

	request.environment = &environment;
	request.pids = pids;
	if (parse_arguments(argc, argv, &request, &choice, &err) || decide(pam, &choice, &outside, &err))
		return refuse(pam, flags, &err);
	if (outside)
		return PAM_SUCCESS;
	request.nosuid = choice.as_jobs || jail_selection_is_given(&choice.only);
	if (jail_enter(&request, &err) ||
	    jail_confine(request.level, &err) || jail_confine_final(request.level, &err))
		return refuse(pam, flags, &err);
	/* sshd gives the session what PAM has. */
	for (size_t i = 0; i < environment.n && result == PAM_SUCCESS; i++)
		result = pam_putenv(pam, environment.variables[i]);
	jail_environment_free(&environment);
	return result;
}

EXPORT int pam_sm_close_session(pam_handle_t *pam, int flags, int argc, const char **argv)
{
	(void)pam;
	(void)flags;
	(void)argc;
	(void)argv;
	/* The namespace ends with the last process of the session. */
	return PAM_SUCCESS;
}
