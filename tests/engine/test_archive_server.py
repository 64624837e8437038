# SPDX-License-Identifier: Apache-2.0
"""Archives of this machine served on loopback: these folders, and no others."""

from __future__ import annotations

import urllib.error
import urllib.request
from pathlib import Path

import pytest

from cellblock.engine.archive_server import serve


def fetch(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=60) as response:
        return bytes(response.read())


def test_a_local_archive_is_served_under_its_own_path_and_nothing_else_is(tmp_path: Path) -> None:
    archive, secret = tmp_path / "archive", tmp_path / "secret"
    (archive / "dists").mkdir(parents=True)
    (archive / "dists" / "Release").write_text("x")
    (archive / "out").symlink_to(secret)
    secret.write_text("s")
    lines = [f"deb [trusted=yes] file://{archive} trixie main", "deb http://mirror.test/x trixie main"]
    with serve([archive], lines) as served:
        address = served[0].split()[2]
        assert address.startswith("http://127.0.0.1:")
        assert fetch(f"{address}/dists/Release") == b"x"
        assert served[1] == lines[1]
        for path in ("/out", "/../secret", "/dists", "/dists/../../secret"):
            with pytest.raises(urllib.error.HTTPError, match="404"):
                fetch(address + path)
    with pytest.raises(urllib.error.URLError):
        fetch(f"{address}/dists/Release")


def test_without_local_archives_nothing_is_served() -> None:
    with serve([], ["deb http://mirror.test/x trixie main"]) as served:
        assert served == ["deb http://mirror.test/x trixie main"]
