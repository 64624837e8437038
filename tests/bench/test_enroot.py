# SPDX-License-Identifier: Apache-2.0
"""The keys of `build.py bench enroot --json`, which others read."""

import dataclasses

from cellblock.bench.enroot import EnrootFigures
from cellblock.bench.parts.enroot_import import ImportFigures


def test_keys() -> None:
    imports = ImportFigures(
        cold={"base": (1.0, 1.1, 9.0), "big": (5.0, 7.0)},
        cached=(0.05, 0.06, 0.09),
        peak_mb=60.4,
        unpacked={"big": 40},
        pulled={"big": 20},
    )
    figures = EnrootFigures(
        files=3,
        image_bytes=2_000_000,
        start_ms=(1, 2, 9),
        start_sqsh_ms=(10, 20, 30),
        create_s=(1.2, 1.3, 9.9),
        unsquashfs_s=(1, 1, 1),
        imports=imports,
        seconds=1,
    )
    keys = figures.keys()
    assert (keys["start_ms"], keys["start_sqsh_ms"], keys["create_vs_unsquashfs"]) == (2, 20, 1.3)
    assert (keys["import_base_s"], keys["import_big_s"], keys["import_cached_s"]) == (1.1, 6, 0.06)
    assert (keys["import_peak_mb"], keys["umoci_mksquashfs_big_s"], keys["podman_pull_big_s"]) == (60, 40, 20)
    keys = dataclasses.replace(figures, imports=None).keys()
    assert {"import_base_s", "import_big_s", "import_cached_s", "import_peak_mb"} <= set(keys)
