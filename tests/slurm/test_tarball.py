# SPDX-License-Identifier: Apache-2.0
"""A tarball is fetched once, verified always, and is the release that the variant says."""

from __future__ import annotations

import http.server
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from cellblock.errors import CellblockError, DefinitionError
from cellblock.slurm.tarball import fetch, read_release
from cellblock.variants import SlurmSource

from .small_slurm import small_slurm

WHERE = "variant mine: slurm"


def source(path: object, sha256: str, release: str = "25.05") -> SlurmSource:
    return SlurmSource(source=str(path), sha256=sha256, release=release)


class Server(http.server.ThreadingHTTPServer):
    """Serves `files` by path; of a path in `breaks` it sends half, once."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.breaks: set[str] = set()
        self.requests: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        assert isinstance(self.server, Server)
        self.server.requests.append(self.headers.get("Range", "all"))
        content = self.server.files.get(self.path)
        if content is None:
            self.send_error(404)
            return
        start = int(self.headers.get("Range", "bytes=0-")[6:-1])
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(content) - start))
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.end_headers()
        if self.path in self.server.breaks:
            self.server.breaks.remove(self.path)
            self.wfile.write(content[: len(content) // 2])
            self.close_connection = True
            return
        self.wfile.write(content[start:])

    def log_message(self, format: str, *args: object) -> None:
        """Tests print nothing."""


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_a_file_is_used_where_it_is(tmp_path: Path) -> None:
    path = tmp_path / "slurm.tar.gz"
    assert fetch(source(path, small_slurm(path)), tmp_path / "cache", WHERE) == path
    assert not (tmp_path / "cache").exists()


def test_a_url_is_fetched_once_also_when_the_connection_breaks(tmp_path: Path, server: Server) -> None:
    path = tmp_path / "slurm.tar.gz"
    sha256 = small_slurm(path)
    server.files["/slurm.tar.gz"] = path.read_bytes()
    server.breaks.add("/slurm.tar.gz")
    of = source(f"{server.url}/slurm.tar.gz", sha256)
    fetched = fetch(of, tmp_path / "cache", WHERE)
    assert fetched.read_bytes() == path.read_bytes()
    assert fetch(of, tmp_path / "cache", WHERE) == fetched
    assert len(server.requests) == 2
    assert server.requests[1].startswith("bytes=")


def test_another_sha256_is_refused_and_not_kept(tmp_path: Path, server: Server) -> None:
    server.files["/slurm.tar.gz"] = b"what somebody else put there"
    with pytest.raises(CellblockError) as raised:
        fetch(source(f"{server.url}/slurm.tar.gz", "0" * 64), tmp_path / "cache", WHERE)
    assert raised.value.message.startswith(f"{WHERE}: the tarball is not the one that variants.yaml means")
    assert f"expected SHA-256: {'0' * 64}" in raised.value.message
    assert "correct `sha256`" in raised.value.hint
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["lock"]


def test_a_changed_file_of_the_cache_is_fetched_again(tmp_path: Path, server: Server) -> None:
    path = tmp_path / "slurm.tar.gz"
    sha256 = small_slurm(path)
    server.files["/slurm.tar.gz"] = path.read_bytes()
    of = source(f"{server.url}/slurm.tar.gz", sha256)
    fetch(of, tmp_path / "cache", WHERE).write_bytes(b"bit rot")
    assert fetch(of, tmp_path / "cache", WHERE).read_bytes() == path.read_bytes()


def test_a_missing_file_and_a_missing_url_are_named(tmp_path: Path, server: Server) -> None:
    with pytest.raises(
        CellblockError, match=r"variant mine: slurm: /nowhere/slurm\.tar: there is no such file"
    ):
        fetch(source("/nowhere/slurm.tar", "0" * 64), tmp_path, WHERE)
    url = f"http://me:secret@127.0.0.1:{server.server_port}/slurm.tar"
    with pytest.raises(CellblockError, match=r"/slurm\.tar cannot be fetched: HTTP 404") as raised:
        fetch(source(url, "0" * 64), tmp_path, WHERE)
    assert "secret" not in str(raised.value)


def test_a_server_that_is_not_there_is_named(tmp_path: Path) -> None:
    # Port 9 (discard) of loopback: refused at once.
    with pytest.raises(CellblockError, match=r"http://127\.0\.0\.1:9/slurm\.tar cannot be fetched"):
        fetch(source("http://127.0.0.1:9/slurm.tar", "0" * 64), tmp_path, WHERE)


def test_a_tarball_says_which_release_it_is(tmp_path: Path) -> None:
    path = tmp_path / "slurm.tar.gz"
    release = read_release(path, source(path, small_slurm(path)), WHERE)
    assert (release.version, release.library, release.epoch) == ("25.05.3", 42, 1_700_000_000)


def test_another_release_than_the_variants_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "slurm.tar.gz"
    sha256 = small_slurm(path, "24.11.5")
    with pytest.raises(
        DefinitionError, match=r"`release` is 25\.05, and slurm\.tar\.gz holds Slurm 24\.11\.5"
    ):
        read_release(path, source(path, sha256), WHERE)


def test_what_is_no_tarball_and_what_is_no_slurm_are_told(tmp_path: Path) -> None:
    text, other = tmp_path / "page.html", tmp_path / "other.tar"
    text.write_text("<html>log in first</html>")
    with tarfile.open(other, "w") as archive:
        archive.add(text, "other-1.0/README")
    with pytest.raises(CellblockError, match=r"page\.html is no tarball"):
        read_release(text, source(text, "0" * 64), WHERE)
    with pytest.raises(CellblockError, match=r"other\.tar is no release of Slurm: it holds no file META"):
        read_release(other, source(other, "0" * 64), WHERE)
