/* SPDX-License-Identifier: Apache-2.0 */
/* Device nodes: the disk below the volume, the kernel's memory and log, other people's terminals. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "attack.h"

/* Makes a node and opens it. The open, not the node, is what counts. */
static void node(const char *path, mode_t type, dev_t device, const char *what)
{
	unlink(path);
	if (mknod(path, type | 0600, device))
		held("mknod of %s at %s", what, path);
	int fd = open(path, O_RDONLY | O_NONBLOCK);
	int number = errno;
	unlink(path);
	errno = number;
	if (fd < 0)
		held("open %s at %s", what, path);
	escaped("%s was opened by a node at %s", what, path);
}

static dev_t disk(void)
{
	struct stat st;

	if (stat("/", &st))
		broken("stat /");
	return st.st_dev;
}

static void disk_in_dev(void)
{
	node("/dev/disk-of-mine", S_IFBLK, disk(), "the volume's disk");
}

/* As the disk: some machines let nobody open that while it is mounted. */
static void loop_in_dev(void)
{
	node("/dev/loop0-of-mine", S_IFBLK, makedev(7, 0), "loop device 0");
}

static void kernel_log(void)
{
	node("/dev/kmsg-of-mine", S_IFCHR, makedev(1, 11), "/dev/kmsg");
}

static void loop_control(void)
{
	node("/dev/loop-of-mine", S_IFCHR, makedev(10, 237), "/dev/loop-control");
}

/* Character device 1:3 is /dev/null: the mount's nodev refuses it, or nothing does. */
static void on_volume(void)
{
	node("/escape/node", S_IFCHR, makedev(1, 3), "/dev/null");
}

static void on_tmp(void)
{
	node("/tmp/node", S_IFCHR, makedev(1, 3), "/dev/null");
}

static void on_shm(void)
{
	node("/dev/shm/node", S_IFCHR, makedev(1, 3), "/dev/null");
}

static void on_run(void)
{
	node("/run/node", S_IFCHR, makedev(1, 3), "/dev/null");
}

/* Everything in /dev that is not of the list. fuse: of use only with the right to mount (attacks/mounts.c). */
static void listed_only(void)
{
	static const char known[] = " null zero full random urandom tty fd stdin stdout stderr ptmx pts shm mqueue fuse ";
	DIR *dev = opendir("/dev");

	if (!dev)
		held("opendir /dev");
	for (struct dirent *entry; (entry = readdir(dev));) {
		char word[260];
		snprintf(word, sizeof(word), " %s ", entry->d_name);
		if (entry->d_name[0] != '.' && !strstr(known, word))
			escaped("/dev/%s is there", entry->d_name);
	}
	errno = 0;
	held("/dev has the listed devices only");
}

/* A terminal of the node, held open by a session outside. */
static void foreign_terminal(void)
{
	char path[32];

	snprintf(path, sizeof(path), "/dev/pts/%ld", given_number("TERMINAL"));
	if (open(path, O_RDWR | O_NOCTTY | O_NONBLOCK) < 0)
		held("open %s", path);
	escaped("%s, a terminal of the outside, was opened", path);
}

/* As foreign_terminal, by a file system of terminals of our own making. */
static void terminal_by_node(void)
{
	char path[64];

	snprintf(path, sizeof(path), "terminal %ld", given_number("TERMINAL"));
	node("/dev/pts-of-mine", S_IFCHR, makedev(136, (unsigned)given_number("TERMINAL")), path);
}

/* Run in `srun --pty`: a command pushed to our own terminal, to be read by who has it after us. */
static void push_input(void)
{
	char line[256];
	int fd = open("/dev/tty", O_RDWR);

	if (fd < 0)
		held("open /dev/tty");
	snprintf(line, sizeof(line), "\ntouch /root/%s\n", given("MARK"));
	for (const char *c = line; *c; c++)
		if (ioctl(fd, TIOCSTI, c))
			held("ioctl TIOCSTI");
	errno = 0;
	held("a command was pushed; the test looks for what it does");
}

const struct attack device_attacks[] = {
	{ "disk-node", disk_in_dev },
	{ "loop-node", loop_in_dev },
	{ "kernel-log-node", kernel_log },
	{ "loop-control-node", loop_control },
	{ "node-on-volume", on_volume },
	{ "node-on-tmp", on_tmp },
	{ "node-on-shm", on_shm },
	{ "node-on-run", on_run },
	{ "listed-devices-only", listed_only },
	{ "foreign-terminal", foreign_terminal },
	{ "terminal-by-node", terminal_by_node },
	{ "push-input", push_input },
	{ NULL, NULL },
};
