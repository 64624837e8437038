#define _GNU_SOURCE
#include "handed_over.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../../enroot/text/text.h"
#include "../../spank_jail/core/scoped.h"

int pyxis_handing_begin(struct pyxis_handing *handing, struct jail_error *err)
{
	int ends[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends))
		return jail_fail(err, "socketpair", errno, "cannot begin the import");
	*handing = (struct pyxis_handing){ ends[0], ends[1] };
	/* One process and one thread: nothing else is run meanwhile. */
	return fcntl(ends[1], F_SETFD, 0) ? jail_fail(err, "fcntl", errno, "cannot begin the import") : 0;
}

char *pyxis_handing_take(struct pyxis_handing *handing, int *held)
{
	union {
		struct cmsghdr header;
		char room[CMSG_SPACE(sizeof(int))];
	} control = { .room = { 0 } };
	char path[PATH_MAX];
	struct iovec text = { path, sizeof(path) };
	struct msghdr message = { .msg_iov = &text, .msg_iovlen = 1, .msg_control = control.room,
				  .msg_controllen = sizeof(control.room) };
	ssize_t got = recvmsg(handing->ours, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	const struct cmsghdr *header = got > 0 ? CMSG_FIRSTHDR(&message) : NULL;

	if (!header || header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS ||
	    header->cmsg_len != CMSG_LEN(sizeof(int)))
		return NULL;
	memcpy(held, CMSG_DATA(header), sizeof(int));
	return text_copy(path, (size_t)got);
}

void pyxis_handing_end(struct pyxis_handing *handing)
{
	jail_close(&handing->ours);
	jail_close(&handing->theirs);
}
