# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's repository is used when the told key signed it and it holds the told version, and else refused."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from cellblock.cuda import CudaRepository
from cellblock.errors import CellblockError, DefinitionError
from cellblock.lock.apt_root import AptRoot
from cellblock.lock.archives import archives_of
from cellblock.template import Renderer
from cellblock.variants import load_variants

from .signed_archive import SigningKey, make_archive, make_key, sign

pytestmark = pytest.mark.skipif(
    not (shutil.which("gpg") and shutil.which("apt-get")), reason="gpg or apt is not installed"
)
VARIANTS = """distributions:
  debian13: {{id: debian, version: "13", codename: trixie, slurm: "24.11", stable: true}}
variants:
  mine: {{distribution: debian13, cuda: {cuda}}}
"""


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> SigningKey:
    return make_key(tmp_path_factory.mktemp("key") / "home")


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory, key: SigningKey) -> Path:
    """An archive that nobody changes; apt reads it as a user of its own."""
    folder = tmp_path_factory.mktemp("signed") / "archive"
    make_archive(folder)
    sign(folder, key)
    return folder


@pytest.fixture
def repository(tmp_path: Path, signed: Path, key: SigningKey) -> Callable[..., CudaRepository]:
    """The repository of a variant; keywords replace keys of its `cuda`."""

    def declare(**fields: str) -> CudaRepository:
        values = {
            "from": "nvidia",
            "repository": f"file://{signed}",
            "key": str(key.public),
            "fingerprint": key.fingerprint,
            "version": "12.8",
            **fields,
        }
        text = ", ".join(f'{name}: "{value}"' for name, value in values.items())
        path = tmp_path / "variants.yaml"
        path.write_text(VARIANTS.format(cuda="{" + text + "}"))
        variant = load_variants(path)["mine"]
        assert variant.cuda
        assert variant.cuda.nvidia
        return CudaRepository(variant, variant.cuda.nvidia, tmp_path / "cache")

    return declare


@pytest.fixture
def changed(tmp_path: Path, signed: Path) -> Path:
    """A copy of the archive, to be changed."""
    return Path(shutil.copytree(signed, tmp_path / "changed"))


def test_an_archive_signed_with_the_told_key_is_used(repository: Callable[..., CudaRepository]) -> None:
    made = repository()
    made.ensure()
    made.ensure()
    assert made.keyring.is_file()
    assert made.variant.summary == "Debian 13 (trixie), Slurm 24.11, CUDA 12.8 of NVIDIA"
    # The distribution's own CUDA is not asked for, so neither are the components that hold it.
    assert made.variant.distribution.components(made.variant.cuda) == ("main",)


def test_apt_takes_the_told_version_and_the_nccl_for_it(
    repository: Callable[..., CudaRepository], tmp_path: Path
) -> None:
    made = repository()
    made.ensure()
    assert made.variant.cuda
    preferences = made.variant.cuda.preferences
    apt = AptRoot(tmp_path / "apt", "debian", "amd64", archives_of([made.line]), preferences=preferences)
    apt.update()
    chosen = {
        choice.name: choice.version for choice in apt.would_install([], "install", *made.variant.cuda.runtime)
    }
    assert chosen == {"cuda-libraries-12-8": "12.8.1-1", "libnccl2": "2.26.2-1+cuda12.8"}


def test_a_key_with_another_fingerprint_is_refused(
    repository: Callable[..., CudaRepository], key: SigningKey
) -> None:
    made = repository(fingerprint="0" * 40)
    with pytest.raises(CellblockError, match=r"is not the key that variants\.yaml means") as raised:
        made.ensure()
    assert f"expected fingerprint: {'0' * 40}" in raised.value.message
    assert f"found:                {key.fingerprint}" in raised.value.message
    assert not made.keyring.exists()


def test_of_a_file_with_several_keys_the_told_one_alone_is_trusted(
    repository: Callable[..., CudaRepository], key: SigningKey, changed: Path, tmp_path: Path
) -> None:
    other = make_key(tmp_path / "other")
    both = tmp_path / "both.asc"
    both.write_bytes(other.public.read_bytes() + key.public.read_bytes())
    repository(key=str(both)).ensure()
    sign(changed, other)
    with pytest.raises(CellblockError, match="is not signed with the key"):
        repository(key=str(both), repository=f"file://{changed}").ensure()


def test_an_unsigned_archive_is_refused(repository: Callable[..., CudaRepository], changed: Path) -> None:
    (changed / "InRelease").unlink()
    with pytest.raises(CellblockError, match=r"variant mine: cuda: .* is not signed with the key") as raised:
        repository(repository=f"file://{changed}").ensure()
    assert "do not use it" in raised.value.hint


def test_an_archive_changed_after_it_was_signed_is_refused(
    repository: Callable[..., CudaRepository], changed: Path
) -> None:
    signed = changed / "InRelease"
    signed.write_text(signed.read_text().replace("Label: test", "Label: best"))
    with pytest.raises(CellblockError, match="is not signed with the key"):
        repository(repository=f"file://{changed}").ensure()


def test_a_version_that_is_not_there_is_named_with_those_that_are(
    repository: Callable[..., CudaRepository],
) -> None:
    with pytest.raises(CellblockError, match=r"holds no CUDA 12\.9 for amd64.*cuda-libraries-12-9") as raised:
        repository(version="12.9").ensure()
    assert "versions there: 12.8, 13.0" in raised.value.hint


def test_an_archive_that_is_not_there_and_a_key_that_is_not_there_are_named(
    repository: Callable[..., CudaRepository], tmp_path: Path
) -> None:
    with pytest.raises(CellblockError, match=r"file:///nowhere cannot be used"):
        repository(repository="file:///nowhere").ensure()
    shutil.rmtree(tmp_path / "cache")
    with pytest.raises(CellblockError, match=r"/nowhere/key\.asc cannot be read: No such file"):
        repository(key="/nowhere/key.asc").ensure()
    page = tmp_path / "page.html"
    page.write_text("<html>log in first</html>")
    with pytest.raises(CellblockError, match=r"page\.html holds no OpenPGP key"):
        repository(key=str(page)).ensure()


def test_an_expired_key_is_refused(repository: Callable[..., CudaRepository], tmp_path: Path) -> None:
    old = make_key(tmp_path / "old", expired=True)
    with pytest.raises(CellblockError, match="has expired"):
        repository(key=str(old.public), fingerprint=old.fingerprint).ensure()


def test_runtime_and_development_are_different_images(repository: Callable[..., CudaRepository]) -> None:
    renderer = Renderer(repository().variant)
    assert renderer.text("{{ cuda.runtime | join(' ') }}", "x") == "cuda-libraries-12-8 libnccl2"
    assert renderer.text("{{ cuda.development | join(' ') }}", "x") == "cuda-toolkit-12-8 libnccl-dev"


@pytest.mark.parametrize(
    ("cuda", "message"),
    [
        ("nvidia", r"`from: nvidia` also needs repository, key, fingerprint, version"),
        ("{from: nvidia, version: '12.8'}", r"also needs repository, key, fingerprint"),
        ("{from: distribution, version: '12.8'}", r"version: only with `from: nvidia`"),
        ("amd", r"cuda\.from.*'distribution' or 'nvidia'"),
        ("distribution", r"no CUDA of debian13's own is known"),
        (
            "{from: nvidia, repository: 'http://x/', key: k, fingerprint: abcd, version: '12.8'}",
            "40 hexadecimal",
        ),
        ("{from: nvidia, repository: 'x', key: k, fingerprint: abcd, version: '12.8'}", r"repository"),
    ],
)
def test_a_wrong_definition_names_file_line_and_key(tmp_path: Path, cuda: str, message: str) -> None:
    path = tmp_path / "variants.yaml"
    path.write_text(VARIANTS.format(cuda=cuda))
    with pytest.raises(DefinitionError, match=message) as raised:
        load_variants(path)
    assert "variants.yaml:4: variants.mine.cuda" in str(raised.value)
