/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the unnamed temporary files for layers that are downloaded before they are read.
 * download_threads.c calls it. */
#define _GNU_SOURCE
#include "spool.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "native/base/scoped.h"

/* More than any layer that is worth waiting for; a larger one is read when its turn comes. */
#define LIMIT (4ULL << 30)
/* Who gives memory for files alone gets little use of it. */
#define MEMORY_LIMIT (64ULL << 20)

/* Left for connections and pipes, where an image has hundreds of layers and the limit of open files is low. */
#define DESCRIPTORS 128

static bool is_memory(const char *folder)
{
	struct statfs st;

	return !statfs(folder, &st) && (st.f_type == TMPFS_MAGIC || st.f_type == RAMFS_MAGIC);
}

void spool_begin(struct spool *spool, const struct settings *settings)
{
	const char *temp = settings_get(settings, "ENROOT_TEMP_PATH"), *cache = settings_get(settings, "ENROOT_CACHE_PATH");
	const char *folder = *temp && !is_memory(temp) && !access(temp, W_OK | X_OK) ? temp :
			     *cache && !access(cache, W_OK | X_OK) ? cache : temp;
	struct statvfs space;

	*spool = (struct spool){ 0 };
	if (!*folder || statvfs(folder, &space))
		return;
	spool->folder = text_copy(folder, strlen(folder));
	spool->limit = is_memory(folder) ? MEMORY_LIMIT : LIMIT;
	/* Others live there too. */
	unsigned long long half = (unsigned long long)space.f_bavail * space.f_frsize / 2;
	if (spool->limit > half)
		spool->limit = half;
}

void spool_end(struct spool *spool)
{
	free(spool->folder);
	*spool = (struct spool){ 0 };
}

int spool_open(const struct spool *spool)
{
	if (!spool->folder) {
		errno = ENOENT;
		return -1;
	}
	int fd = open(spool->folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	long files = sysconf(_SC_OPEN_MAX);
	/* Descriptors are given in their order. */
	if (fd >= 0 && files >= 0 && fd > files - DESCRIPTORS) {
		close(fd);
		errno = EMFILE;
		return -1;
	}
	if (fd >= 0)
		return fd;
	/* NFS and Lustre know no files without a name. */
	scoped_free char *path = text_format("%s/.enroot-layer-XXXXXX", spool->folder);
	fd = mkostemp(path, O_CLOEXEC);
	if (fd >= 0)
		unlink(path);
	return fd;
}
