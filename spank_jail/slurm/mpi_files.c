/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps root's the files and sockets that Slurm's MPI plugins make in slurmd's spool directory, and would give to the
 * user. plugin.c calls it. */
#define _GNU_SOURCE
#include "mpi_files.h"

#include <fcntl.h>
#include <link.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "native/base/scoped.h"
#include "native/base/sys.h"
#include "spank_jail/guards/common/imported_functions.h"
#include "spank_jail/job/spool.h"

#define MODE_OF_KEPT 0755

/* One step a process. */
static struct {
	uid_t user;
	const char *spool;
	bool outside;
} guarded;

static bool mount_of(int directory, const char *path, int flags, uint64_t *mount)
{
	struct statx st;

	if (statx(directory, path, flags, STATX_MNT_ID, &st) || !(st.stx_mask & STATX_MNT_ID))
		return false;
	*mount = st.stx_mnt_id;
	return true;
}

/* The spool is in a mount of its own; in the window nothing else of the node's can be written there. */
static bool is_in_spool(int directory, const char *path, int flags)
{
	uint64_t spool, own;

	return guarded.spool && mount_of(AT_FDCWD, guarded.spool, 0, &spool) && mount_of(directory, path, flags, &own) &&
	       own == spool;
}

/* A socket is given: slurmd connects to it as the user. */
static bool is_kept(int directory, const char *path, int flags, struct stat *st)
{
	return is_in_spool(directory, path, flags) && !fstatat(directory, path, st, flags) && !S_ISSOCK(st->st_mode);
}

/* What there is of a step outside is the user's already. By his own rights: he can put a link in its place. */
static int give_elsewhere(int directory, const char *path, uid_t uid, gid_t gid, int flags)
{
	uid_t before = guarded.outside ? sys_thread_setfsuid(guarded.user) : 0;
	int result = fchownat(directory, path, uid, gid, flags);

	if (guarded.outside)
		(void)sys_thread_setfsuid(before);
	return result;
}

static int give_at(int directory, const char *path, uid_t uid, gid_t gid, int flags)
{
	struct stat st;

	if (!is_kept(directory, path, flags & (AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH), &st))
		return give_elsewhere(directory, path, uid, gid, flags);
	/* Tasks read in theirs. Nobody but root can exchange it. */
	return S_ISDIR(st.st_mode) ? fchmodat(directory, path, MODE_OF_KEPT, 0) : 0;
}

static int give(const char *path, uid_t uid, gid_t gid)
{
	return give_at(AT_FDCWD, path, uid, gid, 0);
}

static int give_link(const char *path, uid_t uid, gid_t gid)
{
	return give_at(AT_FDCWD, path, uid, gid, AT_SYMLINK_NOFOLLOW);
}

static int give_open(int fd, uid_t uid, gid_t gid)
{
	struct stat st;

	return is_kept(fd, "", AT_EMPTY_PATH, &st) ? 0 : give_elsewhere(fd, "", uid, gid, AT_EMPTY_PATH);
}

static bool is_tmp(int directory)
{
	struct stat st, tmp;

	return !fstat(directory, &st) && !stat("/tmp", &tmp) && st.st_dev == tmp.st_dev && st.st_ino == tmp.st_ino;
}

/* In the node's /tmp, where only root may write, so that nobody exchanges it. */
static int make_in_tmp(int directory, const char *path, mode_t mode)
{
	return mkdirat(directory, path, mode) ||
	       fchownat(directory, path, guarded.user, (gid_t)-1, AT_SYMLINK_NOFOLLOW) ? -1 : 0;
}

/* Elsewhere than in the spool is where the user says: in the jail, but for a step outside. */
static int make_at(int directory, const char *path, mode_t mode)
{
	bool own = !is_in_spool(directory, "", AT_EMPTY_PATH);
	uid_t before;
	int result;

	if (own && guarded.outside && is_tmp(directory))
		return make_in_tmp(directory, path, mode);
	before = own ? sys_thread_setfsuid(guarded.user) : 0;
	result = mkdirat(directory, path, mode);
	if (own)
		(void)sys_thread_setfsuid(before);
	return result;
}

static const struct {
	const char *name;
	void *function;
} stand_ins[] = {
	{ "chown", (void *)give }, { "lchown", (void *)give_link }, { "fchown", (void *)give_open },
	{ "fchownat", (void *)give_at }, { "mkdirat", (void *)make_at },
};

static bool is_mpi_plugin(const struct link_map *map)
{
	const char *name = strrchr(map->l_name, '/');

	return name && !strncmp(name, "/mpi_", 5);
}

int jail_mpi_guard(uid_t user, struct jail_error *err)
{
	guarded.user = user;
	for (struct link_map *map = jail_imports_program(); map; map = map->l_next)
		for (size_t i = 0; is_mpi_plugin(map) && i < sizeof(stand_ins) / sizeof(stand_ins[0]); i++)
			if (jail_imports_replace(map, stand_ins[i].name, stand_ins[i].function, err) < 0)
				return -1;
	return 0;
}

void jail_mpi_spool(const char *spool)
{
	guarded.spool = spool;
}

int jail_mpi_outside(struct jail_step *outside, struct jail_error *err)
{
	guarded.outside = true;
	if (jail_spool_path(outside->arguments.spool, outside->node, outside->spool.path, err))
		return -1;
	if (guarded.user)
		jail_mpi_spool(outside->spool.path);
	return 0;
}
