# SPDX-License-Identifier: Apache-2.0
"""Compiles the parser of users' container options into `cellblock._pyxis_options` (cffi, API mode).

Run by setuptools (`cffi_modules` in setup.py) with the project's root as working directory. The sources are
those of the SPANK plugin that know nothing of Slurm. Users of the module go through
`tests.pyxis.container_request`.
"""

from __future__ import annotations

from pathlib import Path

import cffi

OPTIONS = Path("pyxis/options")
# What the options are written in, and what reads a line of fstab: cellblock/launcher/main.py knows them, too.
SHARED = [
    Path("native/base/error.c"),
    *(Path("native/base") / name for name in ("text.c", "variables.c")),
    Path("native/settings/expand.c"),
    Path("native/container/fstab.c"),
]

# Repeats what the headers declare; "...;" lets the compiler fill in layouts, and it checks the rest.
DECLARATIONS = """
struct jail_error { char file[256]; ...; };
char *jail_error_format(const struct jail_error *err, char *buffer, size_t size);

struct text_list { char **items; size_t n; ...; };
enum pyxis_option { PYXIS_N_OPTIONS, ... };
static const char *option_name(unsigned option);
static const char *option_variable(unsigned option);
enum pyxis_switch { PYXIS_UNSET, PYXIS_NO, PYXIS_YES, ... };
enum pyxis_name_flag { PYXIS_AUTO, PYXIS_CREATE, PYXIS_EXEC, PYXIS_NO_EXEC, ... };
static const unsigned PYXIS_UNSHARE_NET, PYXIS_UNSHARE_IPC, PYXIS_UNSHARE_UTS;
struct pyxis_request {
    char *image; struct text_list mounts; struct text_list sources; char *workdir, *name, *save;
    enum pyxis_name_flag name_flag;
    enum pyxis_switch mount_home, remap_root, entrypoint, entrypoint_log, writable;
    struct text_list environment; unsigned unshare; ...;
};
int pyxis_request_take(struct pyxis_request *request, enum pyxis_option option, const char *value,
                       struct jail_error *err);
int pyxis_request_take_variable(struct pyxis_request *request, enum pyxis_option option, const char *value,
                                struct jail_error *err);
bool pyxis_request_gives(const struct pyxis_request *request, enum pyxis_option option);
void pyxis_request_free(struct pyxis_request *request);

enum pyxis_image_mount { PYXIS_MOUNT_AUTO, PYXIS_MOUNT_FUSE, PYXIS_MOUNT_UNPACK, PYXIS_MOUNT_KERNEL, ... };
struct pyxis_arguments {
    const char *runtime_path, *importer;
    bool execute_entrypoint, job_scope, sbatch_support, use_enroot_load;
    enum pyxis_image_mount image_mount; const char *jail_enter; ...;
};
int pyxis_arguments_parse(int ac, const char *const av[], struct pyxis_arguments *arguments,
                          struct jail_error *err);
"""

SOURCE = """
#include <stdbool.h>
#include "pyxis/options/arguments.h"
#include "pyxis/options/request.h"

static const unsigned PYXIS_UNSHARE_NET = PYXIS_NET, PYXIS_UNSHARE_IPC = PYXIS_IPC,
    PYXIS_UNSHARE_UTS = PYXIS_UTS;

static const char *option_name(unsigned option) { return pyxis_option_names[option]; }
static const char *option_variable(unsigned option) { return pyxis_option_variables[option]; }
"""

ffi = cffi.FFI()
ffi.cdef(DECLARATIONS)
ffi.set_source(
    "cellblock._pyxis_options",
    SOURCE,
    sources=[str(path) for path in [*sorted(OPTIONS.glob("*.c")), *SHARED]],
    depends=[str(path) for path in [*OPTIONS.glob("*.h"), *(each.with_suffix(".h") for each in SHARED)]],
    include_dirs=["."],
    extra_compile_args=["-std=gnu11", "-Wall", "-Wextra", "-fvisibility=hidden"],
)

if __name__ == "__main__":
    ffi.compile(verbose=True)
