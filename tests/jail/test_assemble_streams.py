"""Sources that come as streams: a registry's layers, an OCI archive, compressed layers, damaged ones."""

from __future__ import annotations

import gzip
import os
import subprocess
import tarfile
from pathlib import Path

import pytest
from jail_trees import snapshot

from cellblock.bench.volume import write_layout
from cellblock.errors import CellblockError
from cellblock.events import Events
from cellblock.jail import assemble
from tests.integration.registry import running_registry

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="a jail keeps owners and devices: needs root")

TAR = ["tar", "--format=posix", "--xattrs", "--xattrs-include=*", "--sparse", "--numeric-owner"]


@pytest.fixture
def layout(everything: Path, tmp_path: Path) -> Path:
    everything.chmod(0o755)
    (everything / "noise").write_bytes(os.urandom(5 << 20))
    subprocess.run([*TAR, "-C", str(everything), "-cf", str(tmp_path / "a.tar"), "."], check=True)
    write_layout(tmp_path / "a.tar", tmp_path / "layout")
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
