#define _GNU_SOURCE
#include "image_mount.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../../spank_jail/core/filesystem.h"
#include "../../spank_jail/core/scoped.h"
#include "../../spank_jail/core/sys.h"
#include "../text/program.h"

/* Names and attributes of a file that never changes: the kernel need not ask again. */
#define FOR_EVER "86400"

static void serve(const char *program, const char *image, unsigned long long offset, const struct image_server *server,
		  int gate, uid_t uid, gid_t gid)
{
	char options[160], mountpoint[32], name[] = "squashfuse", in_foreground[] = "-f", flag[] = "-o", byte;
	scoped_fd nothing = open("/dev/null", O_RDWR | O_CLOEXEC);

	/* Out of reach of the terminal's ^C and of whoever waits for our standard streams to close. */
	setsid();
	signal(SIGHUP, SIG_IGN);
	signal(SIGINT, SIG_DFL);
	dup2(nothing, STDIN_FILENO);
	dup2(nothing, STDOUT_FILENO);
	dup2(server->log, STDERR_FILENO);
	if (chdir("/") || read(gate, &byte, 1) != 1)
		_exit(0);
	snprintf(mountpoint, sizeof(mountpoint), "/dev/fd/%d", server->device);
	snprintf(options, sizeof(options), "uid=%u,gid=%u,offset=%llu,kernel_cache,entry_timeout=" FOR_EVER
		 ",attr_timeout=" FOR_EVER ",negative_timeout=" FOR_EVER, (unsigned)uid, (unsigned)gid, offset);
	fcntl(server->device, F_SETFD, 0);
	close_range(3, (unsigned)server->device - 1, 0);
	close_range((unsigned)server->device + 1, ~0U, 0);
	char *arguments[] = { name, in_foreground, flag, options, (char *)(uintptr_t)image, mountpoint, NULL };
	execv(program, arguments);
	_exit(127);
}

int image_server_prepare(struct image_server *server, const char *image, unsigned long long offset, uid_t uid,
			 gid_t gid, struct jail_error *err)
{
	int ends[2];
	scoped_free char *program = program_find("squashfuse");

	if (!program)
		return jail_fail(err, NULL, ENOENT, "the program squashfuse, which mounts images, is not installed; install it, "
				 "or make a root from the image first: enroot create %s", image);
	server->device = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	if (server->device < 0) {
		jail_fail(err, "open", errno, "images are mounted by FUSE; %s. Without it, make a root from the image first: "
			  "enroot create %s", errno == EACCES ? "the administrator allows it with: chmod 0666 /dev/fuse"
			  : "the administrator loads the module fuse, or gives the container this device", image);
		return jail_error_at(err, NULL, 0, "/dev/fuse");
	}
	/* The child finds it at a number of its own above the standard streams. */
	server->log = memfd_create("squashfuse", MFD_CLOEXEC);
	if (server->log < 0 || pipe2(ends, O_CLOEXEC))
		return jail_fail(err, "pipe2", errno, "cannot start squashfuse");
	server->gate = ends[1];
	pid_t pid = fork();
	if (!pid) {
		close(ends[1]);
		serve(program, image, offset, server, ends[0], uid, gid);
	}
	close(ends[0]);
	return pid < 0 ? jail_fail(err, "fork", errno, "cannot start squashfuse") : 0;
}

int image_server_mount(struct image_server *server, const char *image, uid_t uid, gid_t gid, struct jail_error *err)
{
	char device[16], user[16], group[16];

	snprintf(device, sizeof(device), "%d", server->device);
	snprintf(user, sizeof(user), "%u", (unsigned)uid);
	snprintf(group, sizeof(group), "%u", (unsigned)gid);
	const struct jail_parameter parameters[] = {
		{ "source", image }, { "fd", device },	{ "rootmode", "40000" }, { "user_id", user },
		{ "group_id", group }, { "allow_other", NULL }, { "default_permissions", NULL },
	};
	scoped_fd mount = jail_filesystem_new("fuse", parameters, sizeof(parameters) / sizeof(parameters[0]),
					      MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_RDONLY, err);
	if (mount < 0)
		return -1;
	/* With the server's alone open, its end ends the mount, and nobody waits for an answer for ever. */
	jail_close(&server->device);
	if (text_write(server->gate, "", 1))
		return jail_fail(err, "write", errno, "squashfuse ended before it began");
	return jail_keep(&mount);
}

void image_server_explain(const struct image_server *server, const char *image, struct jail_error *err)
{
	char text[256];
	ssize_t got = pread(server->log, text, sizeof(text) - 1, 0);

	text[got > 0 ? got : 0] = '\0';
	text[strcspn(text, "\n")] = '\0';
	jail_fail(err, NULL, 0, "squashfuse cannot mount the image%s%s; is it a squashfs file, of a compression that it knows?",
		  text[0] ? ": " : "", text);
	jail_error_at(err, NULL, 0, image);
}

void image_server_close(struct image_server *server)
{
	jail_close(&server->gate);
	jail_close(&server->device);
	jail_close(&server->log);
}
