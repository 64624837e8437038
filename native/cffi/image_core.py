# SPDX-License-Identifier: Apache-2.0
"""Compiles the image core into `cellblock._image_core` (cffi, out of line, API mode).

Run by setuptools (`cffi_modules` in setup.py) with the project's root as working directory. Users of the
module go through `cellblock.jail.source.image_core`. gzip is read by ISA-L where its header is there
(Debian and Ubuntu have libisal-dev), else by zlib.
"""

from __future__ import annotations

import runpy
from pathlib import Path

import cffi

together = runpy.run_path("native/cffi/together.py")["together"]
FOLDERS = [Path("native") / name for name in ("layers", "directory", "volume")]
HAS_ISAL = Path("/usr/include/isa-l/igzip_lib.h").exists()

# Repeats what their headers declare; the compiler checks it.
DECLARATIONS = """
enum image_fault {
    IMAGE_FAULT_NONE, IMAGE_FAULT_SYSTEM, IMAGE_FAULT_SOURCE, IMAGE_FAULT_LOSSY, IMAGE_FAULT_CHANGED,
    IMAGE_FAULT_CANCELLED, IMAGE_FAULT_LIMIT, IMAGE_FAULT_ABSENT, ...
};
enum image_loss {
    IMAGE_LOSS_OWNER, IMAGE_LOSS_MODE, IMAGE_LOSS_TIME, IMAGE_LOSS_CAPABILITY, IMAGE_LOSS_ACL,
    IMAGE_LOSS_ATTRIBUTE, IMAGE_LOSS_DEVICE, IMAGE_LOSS_FIFO, IMAGE_LOSS_SYMLINK, IMAGE_LOSS_HARDLINK,
    IMAGE_N_LOSSES, ...
};
struct image_error {
    enum image_fault fault; char path[512]; char syscall[24]; int number; char message[512];
};

struct image_pick {
    const uint64_t *digests; size_t count; const uint32_t *starts; int file; bool wanted;
    const char *const *always; unsigned n_always;
};
struct image_directory_request {
    int root; unsigned jobs; bool resume; bool lossy; unsigned shard, shards; const struct image_pick *pick;
};
struct image_layer {
    const char *name, *digest, *diff_id; unsigned long long length; int listing, list_to;
};
struct image_layers_request {
    const struct image_layer *layers;
    unsigned n_layers;
    int (*open_layer)(void *context, unsigned layer);
    int (*progress)(void *context, unsigned long long bytes);
    void *context;
};
struct image_request {
    struct image_directory_request directory;
    const char *records_folder, *source;
    struct image_layers_request layers;
};
struct image_summary { unsigned long long entries, bytes; char digest[65]; };
struct image_progress { unsigned long long read, written, files, kept; };
struct image_lost_count { unsigned long long count; char first[256]; };

struct image_assembly *image_assembly_new(const struct image_request *request, struct image_error *err);
void image_assembly_free(struct image_assembly *assembly);
int image_assembly_run(struct image_assembly *assembly, int *layer, struct image_error *err);
int image_assembly_seal(struct image_assembly *assembly, struct image_error *err);
int image_assembly_manifest(struct image_assembly *assembly, int fd, bool part, struct image_summary *summary,
                            struct image_error *err);
struct image_progress image_assembly_progress(struct image_assembly *assembly);
struct image_lost_count image_assembly_lost(const struct image_assembly *assembly, unsigned loss);

struct image_difference { uint64_t a, b; };
struct image_lines { const char *text; uint64_t length, at, dropped; };
size_t image_manifest_compare(struct image_lines *a, struct image_lines *b, struct image_difference *found,
                              size_t room);
size_t image_pick_digests(const char *text, size_t length, uint64_t *digests);
void image_pick_starts(const uint64_t *digests, size_t count, uint32_t *starts);
#define IMAGE_PICK_STARTS ...

struct sha256_one { const unsigned char *data; size_t length; unsigned char *digest; };
void image_sha256_many(struct sha256_one *all, size_t count);

const char *image_inflate_library(void);

extern "Python" int cellblock_image_open_layer(void *context, unsigned layer);
extern "Python" int cellblock_image_progress(void *context, unsigned long long bytes);
"""

SOURCE = """
#include <stdbool.h>
#include <stdint.h>
#include "native/volume/assembly.h"
#include "native/layers/inflate.h"
#include "native/volume/manifest_compare.h"
#include "native/directory/pick.h"
#include "native/layers/sha256_many.h"
"""

ffi = cffi.FFI()
ffi.cdef(DECLARATIONS)
ffi.set_source(
    "cellblock._image_core",
    SOURCE,
    sources=[together(folder, sorted(folder.glob("*.c"))) for folder in FOLDERS],
    depends=[str(path) for folder in FOLDERS for path in sorted(folder.glob("*.[ch]"))],
    include_dirs=["."],
    define_macros=[("IMAGE_ISAL", "1")] if HAS_ISAL else [],
    libraries=["crypto", "zstd", "isal" if HAS_ISAL else "z"],
    extra_compile_args=["-std=gnu11", "-O2", "-Wall", "-Wextra", "-fvisibility=hidden", "-pthread"],
    extra_link_args=["-pthread"],
)

if __name__ == "__main__":
    ffi.compile(verbose=True)
