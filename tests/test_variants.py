# SPDX-License-Identifier: Apache-2.0
"""variants.yaml: which variant is chosen, and how a mistake is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from cellblock import paths
from cellblock.errors import DefinitionError, UsageError
from cellblock.variants import choose_variant, load_variants

SHA256 = "ab" * 32
VARIANTS = load_variants(paths.PROJECT / "images" / "variants.yaml")


def test_the_variants_asked_for_exist_with_their_slurm() -> None:
    assert {name: VARIANTS[name].slurm.release for name in ("debian12", "debian13", "debian14")} == {
        "debian12": "22.05",
        "debian13": "24.11",
        "debian14": "26.05",
    }
    assert {"ubuntu22.04", "ubuntu24.04", "ubuntu26.04"} <= set(VARIANTS)
    cuda = [variant.distribution.id for variant in VARIANTS.values() if variant.cuda]
    assert sorted(cuda) == ["debian", "ubuntu"]


@pytest.mark.parametrize(
    ("host", "chosen"),
    [
        ({"ID": "debian", "VERSION_ID": "12"}, "debian13"),
        ({"ID": "ubuntu", "ID_LIKE": "debian"}, "ubuntu26.04"),
        ({"ID": "linuxmint", "ID_LIKE": "ubuntu debian"}, "ubuntu26.04"),
        ({"ID": "fedora"}, "debian13"),
        ({}, "debian13"),
    ],
)
def test_without_a_name_the_newest_stable_one_of_the_hosts_family(host: dict[str, str], chosen: str) -> None:
    assert choose_variant(VARIANTS, None, host).name == chosen


def test_an_unknown_variant_is_wrong_usage_with_the_near_miss() -> None:
    with pytest.raises(UsageError, match="there is no variant 'debian31'; did you mean 'debian1"):
        choose_variant(VARIANTS, "debian31")


def test_cuda_needs_components_beyond_main() -> None:
    assert VARIANTS["debian13"].distribution.components(None) == ("main",)
    cuda = VARIANTS["debian13-cuda"]
    assert cuda.distribution.components(cuda.cuda) == ("main", "contrib", "non-free")


def test_an_unknown_distribution_names_file_line_and_near_miss(tmp_path: Path) -> None:
    path = tmp_path / "variants.yaml"
    path.write_text(
        "distributions:\n"
        '  debian13: {id: debian, version: "13", codename: trixie, slurm: "24.11", stable: true}\n'
        "variants:\n"
        "  mine: {distribution: debian31}\n"
    )
    with pytest.raises(DefinitionError, match=r"\.yaml:4: variants\.mine\.distribution: .*'debian13'"):
        load_variants(path)


def test_a_slurm_release_that_yaml_made_a_number_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "variants.yaml"
    path.write_text(
        "distributions:\n"
        '  d: {id: debian, version: "13", codename: trixie, slurm: 24.10, stable: true}\n'
        "variants: {}\n"
    )
    with pytest.raises(DefinitionError, match=r"variants\.yaml:2: distributions\.d\.slurm"):
        load_variants(path)


def test_a_path_in_a_variant_begins_beside_the_file(tmp_path: Path) -> None:
    path = tmp_path / "variants.yaml"
    path.write_text(
        "distributions:\n"
        '  d: {id: debian, version: "13", codename: trixie, slurm: "24.11", stable: true}\n'
        "variants:\n"
        f'  mine: {{distribution: d, slurm: {{source: slurm.tar, sha256: {SHA256}, release: "25.05"}}}}\n'
        f'  far: {{distribution: d, slurm: {{source: "http://h/s.t", sha256: {SHA256}, release: "25.05"}}}}\n'
    )
    variants = load_variants(path)
    sources = {name: variant.slurm_source for name, variant in variants.items()}
    assert sources["mine"]
    assert sources["mine"].source == str(tmp_path / "slurm.tar")
    assert sources["far"]
    assert sources["far"].source == "http://h/s.t"
    assert variants["mine"].slurm.release == "25.05"
    assert variants["mine"].summary == "Debian 13 (trixie), Slurm 25.05 from source"


@pytest.mark.parametrize(
    ("slurm", "message"),
    [
        ('{source: s.tar, sha256: abc, release: "25.05"}', r"slurm\.sha256"),
        ('{source: s.tar, release: "25.05"}', r"slurm\.sha256: missing"),
        (f'{{source: s.tar, sha256: {SHA256}, release: "25.05", without: [munge]}}', r"slurm\.without\.0"),
        (f'{{sauce: s.tar, sha256: {SHA256}, release: "25.05"}}', "did you mean 'source'"),
    ],
)
def test_a_wrong_slurm_names_file_line_and_key(tmp_path: Path, slurm: str, message: str) -> None:
    path = tmp_path / "variants.yaml"
    path.write_text(
        "distributions:\n"
        '  d: {id: debian, version: "13", codename: trixie, slurm: "24.11", stable: true}\n'
        f"variants:\n  mine: {{distribution: d, slurm: {slurm}}}\n"
    )
    with pytest.raises(DefinitionError, match=message) as raised:
        load_variants(path)
    assert "variants.yaml:4: variants.mine.slurm" in str(raised.value)
