/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that a file descriptor sent over a Unix socket arrives with its bytes, and that a wrong
 * message leaves none open. */
#define _GNU_SOURCE
#include "native/base/descriptor.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "native/base/scoped.h"
#include "native/testing/check.h"

static int next_free(void)
{
	scoped_fd fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

	return fd;
}

static void send_two(int socket, const int fds[2])
{
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(2 * sizeof(int))];
	} control = { .bytes = { 0 } };
	struct iovec part = { (char[]){ 'x' }, 1 };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes,
				  .msg_controllen = sizeof(control.bytes) };

	control.header = (struct cmsghdr){ .cmsg_len = CMSG_LEN(2 * sizeof(int)), .cmsg_level = SOL_SOCKET,
					   .cmsg_type = SCM_RIGHTS };
	memcpy(CMSG_DATA(&control.header), fds, 2 * sizeof(int));
	CHECK(sendmsg(socket, &message, 0) == 1);
}

static void check_kind(int kind)
{
	int ends[2], fd = 7;
	char bytes[32];
	struct stat sent, taken;

	CHECK(!socketpair(AF_UNIX, kind | SOCK_CLOEXEC, 0, ends));
	scoped_fd here = ends[0], there = ends[1], file = open("/dev/null", O_RDONLY | O_CLOEXEC);
	/* Nothing is waited for. */
	CHECK(jail_descriptor_receive(here, &fd, bytes, sizeof(bytes)) == -1 && errno == EAGAIN && fd == -1);
	CHECK(jail_descriptor_send(there, file, "a path", 6));
	CHECK(jail_descriptor_receive(here, &fd, bytes, sizeof(bytes)) == 6 && !memcmp(bytes, "a path", 6));
	CHECK(fd >= 0 && fcntl(fd, F_GETFD) == FD_CLOEXEC && !fstat(fd, &taken) && !fstat(file, &sent) &&
	      sent.st_rdev == taken.st_rdev);
	jail_close(&fd);
	CHECK(send(there, "bare", 4, 0) == 4 && jail_descriptor_receive(here, &fd, bytes, sizeof(bytes)) == 4 && fd == -1);
	/* Of several the first, and none is left open. */
	int before = next_free();
	send_two(there, (const int[]){ file, here });
	CHECK(jail_descriptor_receive(here, &fd, bytes, sizeof(bytes)) == 1 && fd == before && next_free() == before + 1);
	jail_close(&fd);
	CHECK(!jail_descriptor_send(there, -1, "x", 1) && errno == EBADF);
	jail_close(&there);
	CHECK(jail_descriptor_receive(here, &fd, bytes, sizeof(bytes)) == 0 && fd == -1);
	/* And no SIGPIPE. */
	CHECK(!jail_descriptor_send(here, file, "x", 1) && errno == EPIPE);
}

int main(void)
{
	check_kind(SOCK_STREAM);
	check_kind(SOCK_SEQPACKET);
	return check_result("descriptor");
}
