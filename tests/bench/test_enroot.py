"""The keys of `build.py bench enroot --json`, which others read."""

from cellblock.bench.enroot import EnrootFigures


def test_keys() -> None:
    figures = EnrootFigures(
        files=3,
        image_bytes=2_000_000,
        start_ms=(1, 2, 9),
        start_sqsh_ms=(10, 20, 30),
        create_s=(1.2, 1.3, 9.9),
        unsquashfs_s=(1, 1, 1),
        seconds=1,
    )
    keys = figures.keys()
    assert (keys["start_ms"], keys["start_sqsh_ms"], keys["create_vs_unsquashfs"]) == (2, 20, 1.3)
    assert {"import_base_s", "import_big_s", "import_cached_s", "import_peak_mb"} <= set(keys)
