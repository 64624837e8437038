/* PAM session module: the session's process, and with it the login shell, enters the jail for good.
 *
 *   session required pam_jail.so root=/mnt/jail/root plan=/etc/cellblock/jail.fstab
 *
 * As the last session line: modules after it would be looked for inside the jail. Any failure denies the
 * session; nobody gets a shell outside by accident.
 */
#define _GNU_SOURCE
#include <security/pam_ext.h>
#include <security/pam_modules.h>
#include <string.h>
#include <syslog.h>

#include "../core/enter.h"

#define EXPORT __attribute__((visibility("default")))

static void notice(void *context, const char *text)
{
	pam_syslog(context, LOG_INFO, "%s", text);
}

static int parse_arguments(int argc, const char **argv, struct jail_entry_request *request, struct jail_error *err)
{
	for (int i = 0; i < argc; i++) {
		if (!strncmp(argv[i], "root=/", 6))
			request->root = argv[i] + 5;
		else if (!strncmp(argv[i], "plan=/", 6))
			request->plan = argv[i] + 5;
		else
			return jail_fail(err, NULL, 0, "unknown argument \"%s\" in the PAM configuration; known: "
					 "root=/PATH, plan=/PATH", argv[i]);
	}
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
	};
	struct jail_environment environment;
	struct jail_error err;
	int result = PAM_SUCCESS;

	request.environment = &environment;
	if (parse_arguments(argc, argv, &request, &err) || jail_enter(&request, &err))
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
