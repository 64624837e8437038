# SPDX-License-Identifier: Apache-2.0
"""What locks, keys and images say of a compiled Slurm and of NVIDIA's CUDA: nothing of this machine."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from cellblock.build.extra_archives import ExtraArchives, extra_archives, of_images
from cellblock.build.mirrors import Archive
from cellblock.events import Events
from cellblock.lock.archives import parse_line
from cellblock.lock.model import Lock
from cellblock.paths import PROJECT
from cellblock.slurm.toolchain import Workshop
from cellblock.variants import Cuda, NvidiaRepository, SlurmSource, Variant, load_variants

DEBIAN = load_variants(PROJECT / "images" / "variants.yaml")["debian13"]
SHA256, FINGERPRINT = "ab" * 32, "0123456789ABCDEF" * 2 + "01234567"
MIRROR = "deb http://mirror.example/debian trixie main"


class Compilers:
    """A toolchain that compiles nothing: these tests ask what things are called."""

    def key(self, packages: Sequence[str]) -> str:
        return "the versions of gcc"

    def workshop(
        self, packages: Sequence[str], on_line: Callable[[str], None]
    ) -> AbstractContextManager[Workshop]:
        raise AssertionError("nothing is to be compiled")


def extras(
    cache: Path, monkeypatch: pytest.MonkeyPatch, place: str = "http://a.example/cuda"
) -> ExtraArchives:
    """Those of a variant with both, on a machine with this cache that reaches NVIDIA's at `place`."""
    monkeypatch.setenv("CELLBLOCK_CACHE", str(cache))
    nvidia = NvidiaRepository(repository=place, key="/key.asc", fingerprint=FINGERPRINT, version="12.8")
    variant = Variant(
        "mine",
        DEBIAN.distribution,
        Cuda(("cuda-libraries-12-8",), ("cuda-toolkit-12-8",), nvidia),
        None,
        DEBIAN.arch,
        slurm_source=SlurmSource(source="/slurm.tar", sha256=SHA256, release="25.05"),
    )
    return extra_archives(variant, Archive((MIRROR,)), Events(), toolchain=Compilers())


def lock_of(made: ExtraArchives) -> Lock:
    archives = (parse_line(MIRROR), *made.archives)
    lock = Lock(variant="mine", architecture="amd64", date="", archives=archives, images={}, packages={})
    return made.named(lock)


def test_a_lock_says_what_they_are_and_not_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [archive.line for archive in lock_of(extras(tmp_path, monkeypatch)).archives]
    assert lines[:3] == [
        MIRROR,
        "deb cellblock:slurm-25.05-abababababababab ./",
        "deb cellblock:cuda-12.8-89ABCDEF01234567 ./",
    ]
    assert re.fullmatch(r"deb cellblock:stand-ins-[0-9a-f]{16} \./", lines[3])


def test_a_lock_made_elsewhere_is_built_from_what_is_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = lock_of(extras(tmp_path / "there", monkeypatch))
    here = extras(tmp_path / "here", monkeypatch, "http://b.example/cuda")
    lines = [archive.line for archive in here.here(lock.archives)]
    assert lines[0] == MIRROR
    assert f"file://{tmp_path}/here/slurm/" in lines[1]
    assert lines[2].startswith(f"deb [signed-by={tmp_path}/here/cuda/")
    assert lines[2].endswith(" http://b.example/cuda ./")


def test_keys_are_the_same_on_every_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = extras(tmp_path / "there", monkeypatch)
    assert there.key == extras(tmp_path / "here", monkeypatch, "http://b.example/cuda").key
    assert there.key is not None


def test_images_name_none_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named = of_images(lock_of(extras(tmp_path, monkeypatch)).archives)
    assert [archive.line for archive in named] == [MIRROR]


def test_a_variant_without_any_has_none() -> None:
    plain = load_variants(PROJECT / "images" / "variants.yaml")["debian12"]
    none = extra_archives(plain, Archive((MIRROR,)), Events())
    assert (none.archives, none.key, none.preferences, none.tarballs) == ((), None, "", {})
