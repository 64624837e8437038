# SPDX-License-Identifier: Apache-2.0
"""libFuzzer on what the libraries in native/ read that others wrote.

All targets of a library run at once, each for CELLBLOCK_FUZZ_SECONDS, from the seeds in its fuzz/corpus.
Each is built with ASan and UBSan and checks invariants of its own; its file says which.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from cellblock.paths import PROJECT
from tests.c_fuzzing import fuzz

SOURCES = PROJECT / "native"

# Bytes of an input at most. libFuzzer prints inputs of up to 256 bytes as base64, so none is longer where its
# own file cannot be written: the resolver's "/" is another one while it runs. A CDI specification of one
# device takes 2048.
LIBRARIES: dict[str, dict[str, int]] = {
    "cdi": {"cdi": 2048},
    "container": {"fstab": 512},
    "layers": {"listing": 8192, "merge": 8192, "tar": 8192},
    "mount": {"resolve": 256},
    "registry": {"documents": 2048, "names": 2048},
    "settings": {"settings": 512},
    "tree_check": {"check": 1024, "line": 1024},
    "volume": {"compare": 8192},
}
# Made for the resolver's target: what a bug in it would reach is not the machine's.
NAMESPACES = (
    "unshare",
    "--user",
    "--map-root-user",
    "--mount",
    "--pid",
    "--fork",
    "--kill-child",
    "--mount-proc",
)
WITH_WORDS = ("cdi", "container", "mount", "settings")
PREFIXES: Mapping[str, Mapping[str, Sequence[str]]] = {"mount": {"resolve": NAMESPACES}}


@pytest.mark.parametrize("library", LIBRARIES)
def test_no_input_breaks_a_target(tmp_path: Path, library: str, namespaces: None) -> None:
    fuzz(
        SOURCES / library,
        LIBRARIES[library],
        tmp_path,
        max_len=LIBRARIES[library],
        dictionaries=library in WITH_WORDS,
        prefixes=PREFIXES.get(library),
    )


def test_every_target_is_run_and_has_seeds() -> None:
    found: dict[str, set[str]] = {}
    for path in SOURCES.glob("*/fuzz/fuzz_*.c"):
        found.setdefault(path.parents[1].name, set()).add(path.stem.removeprefix("fuzz_"))
    assert found == {library: set(targets) for library, targets in LIBRARIES.items()}
    for library, names in found.items():
        for name in names:
            assert list((SOURCES / library / "fuzz/corpus" / name).iterdir())
            assert (SOURCES / library / f"fuzz/{name}.dict").is_file() == (library in WITH_WORDS)
