# SPDX-License-Identifier: Apache-2.0
"""Compiles the comparison of manifests with trees into `cellblock._volume_scan` (cffi, API mode).

Run by setuptools (`cffi_modules` in setup.py) with the project's root as working directory. Users of the
module go through `cellblock.jail.tree.tree_check`.
"""

from __future__ import annotations

import runpy
from pathlib import Path

import cffi

together = runpy.run_path("native/cffi/together.py")["together"]
FOLDER = Path("native/tree_check")

# Repeats what check.h declares; the compiler checks it.
DECLARATIONS = """
enum volume_difference {
    VOLUME_MISSING, VOLUME_KIND, VOLUME_MODE, VOLUME_OWNER, VOLUME_SIZE, VOLUME_TIME, VOLUME_TARGET,
    VOLUME_DEVICE, VOLUME_LINK, VOLUME_CONTENT, VOLUME_ATTRIBUTES, VOLUME_UNREADABLE, ...
};
struct volume_finding { size_t offset; unsigned bits; int number; };
struct volume_error { char message[256]; int number; };
struct volume_check {
    int root; const char *text; size_t length; unsigned threads; bool content;
    struct volume_finding *findings; size_t capacity; size_t n_findings; uint64_t bytes;
};
int volume_check(struct volume_check *check, struct volume_error *err);
"""

ffi = cffi.FFI()
ffi.cdef(DECLARATIONS)
ffi.set_source(
    "cellblock._volume_scan",
    '#include "native/tree_check/check.h"\n',
    sources=[together(FOLDER, sorted(FOLDER.glob("*.c")))],
    depends=[str(path) for path in sorted(FOLDER.glob("*.[ch]"))],
    include_dirs=["."],
    extra_compile_args=[
        *("-std=gnu11", "-O2", "-Wall", "-Wextra", "-Wshadow", "-Wconversion", "-Wno-sign-conversion"),
        *("-fvisibility=hidden", "-fstack-protector-strong", "-pthread"),
    ],
    # dlopen is in libdl before glibc 2.34.
    libraries=["dl"],
    extra_link_args=["-pthread", "-Wl,-z,relro,-z,now"],
)

if __name__ == "__main__":
    ffi.compile(verbose=True)
