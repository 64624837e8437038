# SPDX-License-Identifier: Apache-2.0
"""Compiles the Slurm-free mount core into `cellblock._jail_core` (cffi, out of line, API mode).

Run by setuptools (`cffi_modules` in setup.py) with the project's root as working directory. The sources
are those of the SPANK plugin, the PAM module and jail-enter; JAIL_FAULTS adds the seam by which a test
makes any one system call fail. Users of the module go through `tests.spank_jail.mount_core`.
"""

from __future__ import annotations

import runpy
from pathlib import Path

import cffi

together = runpy.run_path("native/cffi/together.py")["together"]
FOLDERS = [Path("native") / name for name in ("base", "seccomp", "mount", "cdi", "jail")]

# Repeats what their headers declare; "...;" lets the compiler fill in layouts, and it checks the rest.
DECLARATIONS = """
struct jail_error {
    char file[256]; int line; char target[256]; char syscall[24]; int number; bool inside; char message[512];
};
char *jail_error_format(const struct jail_error *err, char *buffer, size_t size);

enum jail_type { JAIL_BIND, ... };
enum jail_create { JAIL_CREATE_NONE, JAIL_CREATE_DIR, JAIL_CREATE_FILE, ... };
enum jail_scope { JAIL_SCOPE_JOB, JAIL_SCOPE_STEP, ... };
struct jail_parameter { const char *key, *value; ...; };
struct jail_entry {
    int line; char *source; char *target; enum jail_type type; uint64_t attributes;
    struct jail_parameter parameters[8]; size_t n_parameters;
    enum jail_create create; enum jail_scope scope; bool nofail; const char *only_if; ...;
};
struct jail_plan { char *file; struct jail_entry *entries; size_t n_entries; bool trust_owners; ...; };
int jail_plan_read(const char *path, struct jail_plan *plan, struct jail_error *err);
int jail_plan_parse(const char *text, size_t length, const char *name, struct jail_plan *plan,
                    struct jail_error *err);
void jail_plan_free(struct jail_plan *plan);
bool jail_entry_is_shared(const struct jail_entry *entry);
const char *jail_type_name(enum jail_type type);

int jail_resolve(int root, const char *path, uint64_t flags, struct jail_error *err);
int jail_resolve_create(int root, const char *path, enum jail_create create, struct jail_error *err);

enum jail_level { JAIL_LEVEL_FILESYSTEM, JAIL_LEVEL_CAPABILITIES, JAIL_LEVEL_PID, ... };
int jail_level_parse(const char *name, enum jail_level *level);
int jail_confine(enum jail_level level, struct jail_error *err);
int jail_confine_final(enum jail_level level, struct jail_error *err);
bool jail_confine_allows(unsigned capability);

struct jail_syscall_rule { const char *name; int number; int error; const char *reason; ...; };
extern const struct jail_syscall_rule jail_syscall_rules[];
extern const size_t jail_syscall_n_rules;

struct jail_entry_request {
    const char *root; const char *plan; bool trust_owners;
    void (*notice)(void *context, const char *text); void *context; enum jail_level level;
    const char *init; ...;
};
struct jail_environment { char **variables; size_t n; };
int jail_cdi_environment(const struct jail_plan *plan, struct jail_environment *environment,
                         struct jail_error *err);
void jail_environment_free(struct jail_environment *environment);
int jail_enter(const struct jail_entry_request *request, struct jail_error *err);

void sys_fault_set(unsigned nth, int number);
unsigned sys_fault_count(void);
const char *sys_fault_name(void);

static const unsigned ATTRIBUTE_RO, ATTRIBUTE_NOSUID, ATTRIBUTE_NODEV, ATTRIBUTE_NOEXEC;
extern "Python" void cellblock_jail_notice(void *context, const char *text);
"""

SOURCE = """
#include <stdbool.h>
#include <stdint.h>
#include "native/cdi/cdi.h"
#include "native/jail/confine.h"
#include "native/jail/enter.h"
#include "native/base/error.h"
#include "native/mount/plan.h"
#include "native/mount/resolve.h"
#include "native/seccomp/seccomp.h"
#include "native/base/sys.h"

static const unsigned ATTRIBUTE_RO = MOUNT_ATTR_RDONLY, ATTRIBUTE_NOSUID = MOUNT_ATTR_NOSUID,
    ATTRIBUTE_NODEV = MOUNT_ATTR_NODEV, ATTRIBUTE_NOEXEC = MOUNT_ATTR_NOEXEC;
"""

ffi = cffi.FFI()
ffi.cdef(DECLARATIONS)
ffi.set_source(
    "cellblock._jail_core",
    SOURCE,
    sources=[together(folder, sorted(folder.glob("*.c"))) for folder in FOLDERS],
    depends=[str(path) for folder in FOLDERS for path in sorted(folder.glob("*.[ch]"))],
    include_dirs=["."],
    define_macros=[("JAIL_FAULTS", "1")],
    extra_compile_args=["-std=gnu11", "-Wall", "-Wextra", "-fvisibility=hidden"],
)

if __name__ == "__main__":
    ffi.compile(verbose=True)
