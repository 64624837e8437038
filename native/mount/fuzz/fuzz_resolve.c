/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes the opening of paths inside the jail: in a hostile tree nothing outside it is ever opened or made.
 *
 * An input is text, a line a step (corpus/resolve has examples):
 *
 *   d PATH, f PATH        make a directory, a file
 *   l PATH TARGET         make a symlink
 *   r PATH                resolve PATH
 *   D PATH, F PATH        resolve PATH, making what is missing as a directory, as a file
 *   x N ERRNO             the Nth system call of the next r, D or F fails
 *
 * The process lives in namespaces of its own: `unshare --user --map-root-user --mount --pid --fork --mount-proc
 * fuzz_resolve`. There "outside" is one tmpfs, which is "/" while an input runs, and the tree another one at
 * /jail/root: what was opened tells by its device where it lies, and the number of inodes in use tells whether
 * something was made outside. /proc is in the tree for its magic links.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

/* sys/mount.h and linux/mount.h, which core/sys.h needs, clash before glibc 2.37. */
int sys_openat2(int dir, const char *path, uint64_t flags, uint64_t resolve);
void sys_fault_set(unsigned nth, int number);
unsigned sys_fault_count(void);
#include <linux/openat2.h>

#include "native/mount/resolve.h"
#include "native/testing/fuzz.h"

/* Hidden from libFuzzer afterwards: a directory in which no corpus lies. */
#define OUTSIDE "/mnt"
#define ROOT "/jail/root"

int LLVMFuzzerInitialize(int *argc, char ***argv);

static int old_root, cwd, outside, root;
static dev_t root_device, proc_device;
/* What does not hold, told once the real root is back: libFuzzer wants to write the input there. */
static const char *broken;

#define HOLDS(condition) ((void)((condition) || broken || (broken = #condition)))

static void need(bool done, const char *what)
{
	if (done)
		return;
	fprintf(stderr, "fuzz_resolve: %s: %s; run it as: unshare --user --map-root-user --mount --pid --fork "
		"--mount-proc fuzz_resolve CORPUS\n", what, strerror(errno));
	_exit(2);
}

static void go_outside(void)
{
	if (fchdir(outside) || chroot("."))
		abort();
}

static void come_back(void)
{
	if (fchdir(old_root) || chroot(".") || fchdir(cwd))
		abort();
}

/* Decoys: what absolute links and too many ".." would meet. */
static void fill_outside(void)
{
	static const char *const directories[] = { "/jail", ROOT, "/etc", "/proc", "/a", "/b", "/jail/a", "/jail/etc" };

	for (size_t i = 0; i < sizeof(directories) / sizeof(directories[0]); i++)
		need(!mkdir(directories[i], 0777), "mkdir");
	need(!mknod("/etc/passwd", S_IFREG | 0666, 0) && !mknod("/f", S_IFREG | 0666, 0), "mknod");
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	struct stat st;

	(void)argc, (void)argv;
	need(!mount("tmpfs", OUTSIDE, "tmpfs", 0, NULL), "mount " OUTSIDE);
	old_root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	cwd = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
	outside = open(OUTSIDE, O_PATH | O_DIRECTORY | O_CLOEXEC);
	need(old_root >= 0 && cwd >= 0 && outside >= 0, "open");
	go_outside();
	fill_outside();
	need(!mount("tmpfs", ROOT, "tmpfs", 0, NULL), "mount " ROOT);
	root = open(ROOT, O_PATH | O_DIRECTORY | O_CLOEXEC);
	need(root >= 0 && !fstat(root, &st) && !mkdir(ROOT "/proc", 0755), "look at " ROOT);
	root_device = st.st_dev;
	need(!mount("proc", ROOT "/proc", "proc", 0, NULL), "mount " ROOT "/proc");
	need(!stat(ROOT "/proc", &st), "stat");
	proc_device = st.st_dev;
	come_back();
	return 0;
}

static unsigned long inodes_outside(void)
{
	struct statfs st;

	return fstatfs(outside, &st) ? 0 : st.f_files - st.f_ffree;
}

/* The parent directory of a path to be made, without following any link; its name in *name. */
static int parent_of(char *path, const char **name)
{
	char *slash = strrchr(path, '/');

	*name = slash ? slash + 1 : path;
	if (slash)
		*slash = '\0';
	return sys_openat2(root, slash && *path ? path : ".", O_PATH | O_DIRECTORY,
			   RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV);
}

static void make(char kind, char *path, const char *target)
{
	const char *name;
	int parent = parent_of(path + strspn(path, "/"), &name);

	if (parent < 0)
		return;
	/* Most of these fail, for names like "" and "..": such is the input. */
	int made = kind == 'd' ? mkdirat(parent, name, 0755)
		 : kind == 'f' ? mknodat(parent, name, S_IFREG | 0644, 0) : symlinkat(target, parent, name);
	(void)made;
	close(parent);
}

static bool inside(int fd)
{
	struct stat st;

	return !fstat(fd, &st) && (st.st_dev == root_device || st.st_dev == proc_device);
}

static bool same(int a, int b)
{
	struct stat x, y;

	return !fstat(a, &x) && !fstat(b, &y) && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* What was made is found by the next step: one does it, hundreds rely on it. */
static void check_made(const char *path, enum jail_create create, int fd)
{
	struct jail_error err;
	int again = jail_resolve_create(root, path, create, &err);

	HOLDS(again >= 0 && same(fd, again));
	if (again >= 0)
		close(again);
}

static void resolve(char kind, const char *path)
{
	enum jail_create create = kind == 'D' ? JAIL_CREATE_DIR : JAIL_CREATE_FILE;
	struct jail_error err;

	memset(&err, 0, sizeof(err)); /* else an error that nobody filled in would look like one */
	int fd = kind == 'r' ? jail_resolve(root, path, 0, &err) : jail_resolve_create(root, path, create, &err);
	sys_fault_set(0, 0);
	if (fd < 0) {
		HOLDS(err.message[0] && err.syscall[0] && err.number);
		HOLDS(err.target[0] || !*path);
		return;
	}
	HOLDS(inside(fd));
	if (kind != 'r')
		check_made(path, create, fd);
	close(fd);
}

static void run_line(char *line)
{
	char *rest = line + 2, *first;

	if (!line[0] || line[1] != ' ')
		return;
	if (line[0] == 'r' || line[0] == 'D' || line[0] == 'F') {
		resolve(line[0], rest);
	} else if (line[0] == 'd' || line[0] == 'f') {
		make(line[0], rest, NULL);
	} else if (line[0] == 'l' && (first = strsep(&rest, " ")) && rest) {
		make('l', first, rest);
	} else if (line[0] == 'x') {
		unsigned long nth = strtoul(rest, &rest, 10) % 16, number = strtoul(rest, NULL, 10) % 134;
		sys_fault_set((unsigned)nth, number ? (int)number : EIO);
	}
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *walk)
{
	(void)st;
	if (walk->level > 0 && strcmp(path, ROOT "/proc"))
		(void)(type == FTW_DP || type == FTW_DNR ? rmdir(path) : unlink(path));
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = strndup((const char *)data, size), *rest = text, *line;
	unsigned long before = inodes_outside();
	int lowest = dup(outside);

	close(lowest);
	go_outside();
	while (text && (line = strsep(&rest, "\n")))
		run_line(line);
	sys_fault_set(0, 0);
	nftw(ROOT, remove_one, 16, FTW_PHYS | FTW_DEPTH | FTW_MOUNT);
	come_back();
	free(text);
	int lowest_now = dup(outside);
	close(lowest_now);
	if (broken)
		fprintf(stderr, "fuzz_resolve: does not hold: %s\n", broken);
	MUST(!broken);
	MUST(inodes_outside() == before);
	MUST(lowest_now == lowest);
	return 0;
}
