# SPDX-License-Identifier: Apache-2.0
"""libFuzzer on what the jail's programs read that others wrote: arguments, accounts, plans printed and read.

All targets run at once, each for CELLBLOCK_FUZZ_SECONDS, from the seeds in spank_jail/fuzz/corpus.
Each is built with ASan and UBSan and checks invariants of its own; its file says which.
"""

from __future__ import annotations

from pathlib import Path

from cellblock.paths import PROJECT
from tests.c_fuzzing import fuzz

SOURCES = PROJECT / "spank_jail"

# Bytes of an input at most.
MAX_LEN = {"arguments": 256, "accounts": 512, "plan": 1024}


def test_no_input_breaks_a_target(tmp_path: Path) -> None:
    fuzz(SOURCES, MAX_LEN, tmp_path, max_len=MAX_LEN, dictionaries=True)


def test_every_target_has_seeds_and_words() -> None:
    names = {path.stem.removeprefix("fuzz_") for path in SOURCES.glob("fuzz/fuzz_*.c")}
    assert names == set(MAX_LEN)
    for name in names:
        assert (SOURCES / f"fuzz/{name}.dict").is_file()
        assert list((SOURCES / "fuzz/corpus" / name).iterdir())
