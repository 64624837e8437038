/* SPDX-License-Identifier: Apache-2.0 */
/* Macros for descriptors and memory that are released at the end of the block that declares them. */
#ifndef JAIL_SCOPED_H
#define JAIL_SCOPED_H

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

/* Keeps errno: it runs between the failing call and whoever reads the error. */
static inline void jail_close(int *fd)
{
	int saved = errno;

	if (*fd >= 0)
		close(*fd);
	*fd = -1;
	errno = saved;
}

static inline void jail_free(void *pointer)
{
	free(*(void **)pointer);
}

#define scoped_fd __attribute__((cleanup(jail_close))) int
#define scoped_free __attribute__((cleanup(jail_free)))

/* Hands a scoped descriptor to the caller. */
static inline int jail_keep(int *fd)
{
	int kept = *fd;

	*fd = -1;
	return kept;
}

#endif
