# SPDX-License-Identifier: Apache-2.0
"""Images made to break, to trick or to exhaust whoever imports them."""

from __future__ import annotations

import json
import os
import subprocess
import tarfile
import time
from pathlib import Path

import pytest

from tests.enroot.importing.archives import docker_archive
from tests.enroot.importing.conftest import Importer, unpack_by_unsquashfs
from tests.enroot.importing.layouts import LayerTar, write_layout


def refused(importer: Importer, uri: str, seconds: float = 60) -> str:
    """What import says, which must fail soon and leave nothing."""
    began = time.monotonic()
    done = importer("import", "-o", "bad.sqsh", uri)
    assert done.returncode == 1, done.stderr
    assert time.monotonic() - began < seconds
    assert not (importer.folder / "bad.sqsh").exists()
    assert list((importer.folder / "tmp").iterdir()) == []
    # Nothing that moves a cursor reaches the terminal.
    assert not set(done.stderr) & {chr(code) for code in range(32)} - {"\n"}
    return done.stderr


def header(name: str, size: int, kind: bytes = tarfile.REGTYPE, data: bytes = b"") -> bytes:
    """One member whose header says `size`, whatever `data` is."""
    info = tarfile.TarInfo(name)
    info.type, info.size = kind, size
    return info.tobuf(tarfile.GNU_FORMAT) + data + bytes(-len(data) % 512)


def pax_records(count: int, prefix: str) -> bytes:
    records = []
    for number in range(count):
        body = f" {prefix}{number:06}=x\n".encode()
        records.append(str(len(body) + 2).encode() + body)
    return b"".join(records)


def config_of(image: Path, folder: Path) -> Path:
    return unpack_by_unsquashfs(image, folder) / "etc"


def test_a_configuration_cannot_leave_its_quotes(importer: Importer, tmp_path: Path) -> None:
    """Labels, environment, entrypoint and directory reach a shell as words, whatever they are."""
    mark = tmp_path / "mark"
    attack = f"'; touch {mark}; echo \"$(touch {mark})`touch {mark}`\n touch {mark} #"
    folder = tmp_path / f"a 'b' $(touch {mark.name})\n;"
    config = {
        "Env": [f"A=1\n$(touch {mark})", f"B$(touch {mark})=1", f"C=$(touch {mark})", "D\nE=1"],
        "Entrypoint": ["printf", "<%s>"],
        "Cmd": [attack, "-n", "\\"],
        "Labels": {f"x\ntouch {mark}\n#": f"y\r\ntouch {mark}"},
        "WorkingDir": str(folder),
    }
    layout = write_layout(tmp_path / "layout", [LayerTar().finish()], config=config)
    etc = config_of(importer.image(f"oci:{layout}"), tmp_path / "tree")
    for shell in ("sh", "bash"):
        done = subprocess.run([shell, etc / "rc"], capture_output=True, text=True, cwd=tmp_path)
        assert done.stdout == "".join(f"<{word}>" for word in config["Cmd"]), done.stderr
        assert folder.is_dir()
        done = subprocess.run([shell, etc / "rc", attack], capture_output=True, text=True, cwd=tmp_path)
        assert done.stdout == f"<{attack}>"
        assert not list(tmp_path.rglob(mark.name))
    # No line but a whole one; what start reads there it does not evaluate.
    assert (etc / "environment").read_text() == f"C=$(touch {mark})\n"


def test_volumes_stay_within(importer: Importer, tmp_path: Path) -> None:
    volumes: dict[str, dict[str, str]] = {
        "/a b": {},
        "/../../../host": {},
        "relative": {},
        "/": {},
        "/x\n/etc /etc none rbind": {},
    }
    layout = write_layout(tmp_path / "layout", [LayerTar().finish()], config={"Volumes": volumes})
    lines = (config_of(importer.image(f"oci:{layout}"), tmp_path / "tree") / "fstab").read_text().splitlines()
    assert [line.split()[1] for line in lines] == [
        "/host",
        "/a\\040b",
        "/x\\012/etc\\040/etc\\040none\\040rbind",
        "/relative",
    ]
    assert all(line.startswith("${ENROOT_ROOTFS}/") and "/.." not in line for line in lines)


@pytest.mark.parametrize(
    ("layer", "words"),
    [
        (header("../../out", 0), "leaves the archive's root"),
        (header("link", 0, tarfile.LNKTYPE), ""),
        (header("big", 1 << 60, data=b"x"), "cut off"),
        (header("big", (1 << 63) - 1, data=b"x"), ""),
        (header("x", 2 << 20, tarfile.XHDTYPE, bytes(4096)), "longer than 1 MiB"),
        (header("x", 2 << 20, tarfile.GNUTYPE_LONGNAME, bytes(4096)), "longer than 1 MiB"),
        (header("x", 4, tarfile.XHDTYPE, b"9 a=")[:1024], ""),
        (header("\x1b[2J\x07", 0, b"Z"), "of a type that is not known"),
        (header("a", 0) + header("a/b", 0), "is no directory"),
        (b"x" * 512, "checksum"),
        (b"\x1f\x8b" + bytes(600), ""),
        (b"\x28\xb5\x2f\xfd" + bytes(600), ""),
    ],
)
def test_layers_that_are_none(importer: Importer, tmp_path: Path, layer: bytes, words: str) -> None:
    assert words in refused(importer, f"oci:{write_layout(tmp_path / 'layout', [layer], how='plain')}")


def test_headers_that_cost_much(importer: Importer, tmp_path: Path) -> None:
    """As many attributes as fit into a header, and a long header that is read again for each file."""
    attributes, comments = pax_records(29_000, "SCHILY.xattr.user."), pax_records(40_000, "comment")
    assert max(len(attributes), len(comments)) < 1 << 20
    for kind, records, words in (
        (tarfile.XHDTYPE, attributes, "has a wrong value"),
        (tarfile.XGLTYPE, comments, "a header for all members is longer than 64 KiB"),
    ):
        layer = header("x", len(records), kind, records) + header("file", 0) + bytes(1024)
        assert words in refused(importer, f"oci:{write_layout(tmp_path / 'layout', [layer])}", 30)


def test_more_layers_than_there_are(importer: Importer, tmp_path: Path) -> None:
    layout = write_layout(tmp_path / "layout", [LayerTar().finish()])
    document = {"architecture": "amd64", "rootfs": {"diff_ids": ["sha256:" + "0" * 64] * 100_000}}
    with tarfile.open(tmp_path / "many.tar", "w") as tar:
        for name, value in (
            ("config.json", document),
            ("manifest.json", [{"Config": "config.json", "RepoTags": ["x:1"], "Layers": ["l"] * 100_000}]),
        ):
            (tmp_path / name).write_text(json.dumps(value))
            tar.add(tmp_path / name, name)
    assert "more layers than" in refused(importer, f"docker-archive:{tmp_path}/many.tar")
    for text in (
        "[" * 100_000,
        '{"manifests":' * 50_000,
        '{"manifests": {}}',
        "\x1b[2J",
        '{"manifests": [1]}',
    ):
        (layout / "index.json").write_text(text)
        refused(importer, f"oci:{layout}")
    (layout / "index.json").write_bytes(b" " * (17 << 20))
    assert "no manifest is that long" in refused(importer, f"oci:{layout}")


def test_a_configuration_that_writes_to_the_terminal(importer: Importer, tmp_path: Path) -> None:
    layout = write_layout(tmp_path / "layout", [LayerTar().finish()], tag="\x1b[2Jtag\n[INFO] done")
    refused(importer, f"oci:{layout}:other")
    archive = docker_archive(tmp_path / "saved.tar", {"\x1b]0;x\x07": [LayerTar().finish()]})
    refused(importer, f"docker-archive:{archive}:other")


@pytest.mark.skipif(os.geteuid() != 0, reason="a small file system takes root to mount it")
@pytest.mark.parametrize("what", ["import", "load", "records"])
def test_a_full_disk_says_so(importer: Importer, tmp_path: Path, what: str) -> None:
    """A layer that decompresses to far more than there is room for; or too many files for their records."""
    full = {
        "import": importer.folder / "out",
        "load": importer.folder / "data",
        "records": importer.folder / "tmp",
    }[what]
    full.mkdir(exist_ok=True)
    # Letters: they are packed to less than there is room for, and the image's lz4 leaves them as they are.
    noise = os.urandom(300_000).hex().encode()
    tar = LayerTar()
    for number in range(5000 if what == "records" else 20):
        tar.file(f"file{number}", b"" if what == "records" else noise[number:] + noise[:number])
    layout = write_layout(tmp_path / "layout", [tar.finish()], how="zstd")
    size = "mode=0700,size=256k" if what == "records" else "mode=0700,size=7m"
    subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", full], check=True)
    try:
        command = (
            ["load", "-n", "x"]
            if what == "load"
            else ["import", "-o", f"{full if what == 'import' else importer.folder}/x.sqsh"]
        )
        done = importer(*command, f"oci:{layout}")
        assert done.returncode == 1
        assert f"[ERROR] {full}" in done.stderr
        assert "there is no room left: it is full, " in done.stderr
        assert " free" in done.stderr
        assert list(full.iterdir()) == []
    finally:
        subprocess.run(["umount", str(full)], check=True)
