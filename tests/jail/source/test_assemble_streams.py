# SPDX-License-Identifier: Apache-2.0
"""Sources that come as streams: a registry's layers, an OCI archive, compressed layers, damaged ones."""

from __future__ import annotations

import gzip
import os
import subprocess
import tarfile
from pathlib import Path

import pytest
from jail_trees import snapshot

from cellblock.bench.inputs.volume_sources import Layout
from cellblock.errors import CellblockError
from cellblock.events import Events
from cellblock.jail.assemble import assemble
from tests.integration.registry import running_registry

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="a jail keeps owners and devices: needs root")

TAR = ["tar", "--format=posix", "--xattrs", "--xattrs-include=*", "--sparse", "--numeric-owner"]


@pytest.fixture
def layout(everything: Path, tmp_path: Path) -> Path:
    everything.chmod(0o755)
    (everything / "noise").write_bytes(os.urandom(5 << 20))
    subprocess.run([*TAR, "-C", str(everything), "-cf", str(tmp_path / "a.tar"), "."], check=True)
    Layout(tmp_path / "layout").add("latest", tmp_path / "a.tar")
    return tmp_path / "layout"


def test_a_registry_is_read_as_a_stream(
    layout: Path, everything: Path, tmp_path: Path, events: Events
) -> None:
    with running_registry(tmp_path / "registry") as registry:
        subprocess.run(
            [
                "skopeo",
                "copy",
                "-q",
                "--dest-tls-verify=false",
                f"oci:{layout}",
                f"docker://{registry.host}/jail:1",
            ],
            check=True,
        )
        source = f"docker://{registry.host}/jail:1"
        result = assemble(source, tmp_path / "volume", events)
        assert snapshot(result.root) == snapshot(everything)
        assert not assemble(source, tmp_path / "volume", events).changed
        layer = max((registry.storage).rglob("data"), key=lambda path: path.stat().st_size)
        with layer.open("r+b") as file:
            file.seek(layer.stat().st_size // 2)
            file.write(b"damaged")
        with pytest.raises(CellblockError):
            assemble(source, tmp_path / "other", events)
        assert not (tmp_path / "other/root").exists()


def test_an_archive_of_a_layout_is_read_where_it_lies(
    layout: Path, everything: Path, tmp_path: Path, events: Events
) -> None:
    with tarfile.open(tmp_path / "image.tar", "w") as archive:
        archive.add(layout, ".")
    result = assemble(f"oci-archive:{tmp_path / 'image.tar'}", tmp_path / "volume", events)
    assert snapshot(result.root) == snapshot(everything)


def test_gzip_of_several_members_is_read_to_its_end(
    layout: Path, everything: Path, tmp_path: Path, events: Events
) -> None:
    data = (tmp_path / "a.tar").read_bytes()
    packed = tmp_path / "b.tar.gz"
    packed.write_bytes(
        b"".join(gzip.compress(data[at : at + 999_999]) for at in range(0, len(data), 999_999))
    )
    assert snapshot(assemble(str(packed), tmp_path / "volume", events).root) == snapshot(everything)
    packed.write_bytes(packed.read_bytes()[:-9])
    with pytest.raises(CellblockError, match="cut off"):
        assemble(str(packed), tmp_path / "other", events)


@pytest.mark.parametrize("name", ["a.tar.gz", "a.tar.zst", "a.tar"])
def test_an_archive_may_end_where_a_block_does(tmp_path: Path, events: Events, name: str) -> None:
    """The core hands bytes on by the mebibyte; the last may be full just when the compressed data ends."""
    (tmp_path / "top").mkdir()
    (tmp_path / "top/f").write_bytes(os.urandom(1 << 20))
    plain = tmp_path / "plain"
    subprocess.run([*TAR, "-C", str(tmp_path / "top"), "-cf", str(plain), "."], check=True)
    data = plain.read_bytes().ljust(2 << 20, b"\0")
    packed = tmp_path / name
    if name.endswith(".zst"):
        run = ["zstd", "-q", "-c"]
        packed.write_bytes(subprocess.run(run, input=data, capture_output=True, check=True).stdout)
    else:
        packed.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    result = assemble(str(packed), tmp_path / "volume", events)
    assert snapshot(result.root)[b"f"] == snapshot(tmp_path / "top")[b"f"]
