# SPDX-License-Identifier: Apache-2.0
"""The databases of a tree are found and read, however many there are."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cellblock.jail.tree import databases
from cellblock.jail.tree.access import TreeAccess


@pytest.mark.parametrize("packages", [1, 300])
def test_every_database_of_a_tree_is_read(tmp_path: Path, packages: int) -> None:
    expected = {b"etc/passwd": b"root:x:0:0::/:/bin/sh\n", b"var/lib/dpkg/status": b"Package: a\n"}
    for number in range(packages):
        for member in ("list", "md5sums"):
            expected[f"var/lib/dpkg/info/p{number}.{member}".encode()] = f"{member} of {number}\n".encode()
    for name, text in expected.items():
        path = tmp_path / os.fsdecode(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text)
    (tmp_path / "var/lib/dpkg/info/p0.postinst").write_text("is none")
    (tmp_path / "etc/shadow").symlink_to("/etc/shadow")
    assert databases.of_root(tmp_path) == expected
    with TreeAccess(os.fsencode(tmp_path)) as access:
        assert databases.of_tree(access) == expected
