# SPDX-License-Identifier: Apache-2.0
"""`jail upgrade` in its plainest form, without typer: understood as typer does, or left to it."""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cellblock.cli.jail import change, upgrade
from cellblock.cli.jail.upgrade import PlainUpgrade, parse_plain_upgrade
from cellblock.jail.tree import digests
from cellblock.jail.tree.access import TreeAccess
from cellblock.jail.tree.elf_needs import needs


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("oci:x:y /v", PlainUpgrade("oci:x:y", Path("/v"), "auto", False)),
        ("--json oci:x /v --log json", PlainUpgrade("oci:x", Path("/v"), "json", True)),
        ("./x /v --log plain", PlainUpgrade("./x", Path("/v"), "plain", False)),
        # The rest is typer's: other options, a wrong number of words, a view that there is not, a bare name.
        ("oci:x /v --plan", None),
        ("oci:x /v --jobs 2", None),
        ("oci:x /v --log=json", None),
        ("oci:x /v --log table", None),
        ("oci:x /v --log", None),
        ("oci:x /v -v debian13", None),
        ("oci:x /v --help", None),
        ("oci:x", None),
        ("oci:x /v w", None),
        ("jail /v", None),
        ("-- oci:x /v", None),
    ],
)
def test_words(words: str, expected: PlainUpgrade | None) -> None:
    assert parse_plain_upgrade(["jail", "upgrade", *words.split()]) == expected


def test_only_upgrades() -> None:
    assert parse_plain_upgrade(["jail", "verify", "oci:x", "/v"]) is None
    assert parse_plain_upgrade(["build", "upgrade", "oci:x", "/v"]) is None


def test_defaults_are_typers() -> None:
    typers = inspect.signature(change.upgrade).parameters
    plain = inspect.signature(upgrade.run).parameters
    assert typers["jobs"].default == plain["jobs"].default
    assert typers["drained"].default == plain["drained"].default
    found = parse_plain_upgrade(["jail", "upgrade", "oci:x", "/v"])
    assert found is not None
    assert (found.log, found.as_json) == (typers["log"].default, typers["as_json"].default)


def test_errors_are_the_same(tmp_path: Path) -> None:
    """Both ways end with the same message and status; `--jobs 8` is the default, and typer's."""
    said = []
    for more in ([], ["--jobs", "8"]):
        command = [sys.executable, "-m", "cellblock.cli", "jail", "upgrade", "oci:none", str(tmp_path), *more]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        said.append((done.returncode, done.stdout, done.stderr))
    assert said[0] == said[1]
    assert said[0][0] == 1
    assert "holds no jail yet" in said[0][2]


def test_loads_no_typer(tmp_path: Path) -> None:
    """What this is for: pydantic and typer take longer to load than an upgrade at rest."""
    code = (
        "import json, sys; sys.argv = ['x', 'jail', 'upgrade', 'oci:none', sys.argv[1]]\n"
        "from cellblock.cli.__main__ import main\n"
        "main(); print(json.dumps(sorted(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True, check=True
    )
    loaded = set(json.loads(done.stdout))
    assert "cellblock.jail.upgrade" in loaded
    assert not {"typer", "pydantic", "rich"} & loaded


def test_digests_of_small_files(tmp_path: Path) -> None:
    sizes = [*range(0, 200, 7), 4095, 4096, 65_537, (4 << 20) - 1, 4 << 20, (4 << 20) + 1]
    for number, size in enumerate(sizes):
        (tmp_path / f"f{number}").write_bytes(os.urandom(size))
    (tmp_path / "link").symlink_to("f1")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "fifo")
    others = [b"link", b"folder", b"fifo", b"absent", b"f1/below"]
    names = [f"f{number}".encode() for number in range(len(sizes))]
    with TreeAccess(os.fsencode(tmp_path)) as access:
        found = digests.of_small_files(access, [*names, *others])
    # The largest is left to who hashes while reading.
    assert {path for path, _ in found} == set(names[:-1])
    for (path, stamp), digest in found.items():
        content = (tmp_path / path.decode()).read_bytes()
        assert stamp.size == len(content)
        assert digest == hashlib.sha256(content).hexdigest()


def needed(path: Path) -> list[bytes]:
    with path.open("rb") as file:
        return needs(file.fileno())


def test_needs_as_pyelftools_reads_them() -> None:
    from elftools.common.exceptions import ELFError
    from elftools.elf.dynamic import DynamicSection
    from elftools.elf.elffile import ELFFile

    compared = 0
    libraries = sorted(Path("/usr/lib").glob("*/lib*.so.*"))[:20]
    for path in sorted(Path("/usr/bin").iterdir())[:400:8] + libraries:
        if not path.is_file():
            continue
        expected: list[bytes] = []
        with path.open("rb") as file:
            try:
                section = ELFFile(file).get_section_by_name(".dynamic")
            except ELFError:
                section = None
            if isinstance(section, DynamicSection):
                expected = [
                    getattr(tag, "needed").encode()  # noqa: B009 - made at run time
                    for tag in section.iter_tags("DT_NEEDED")
                ]
        assert needed(path) == expected, path
        compared += bool(expected)
    assert compared >= 10


def test_needs_of_damaged_files(tmp_path: Path) -> None:
    """Cut off anywhere, or with any byte of its first tables changed: an answer, and no exception."""
    whole = Path(sys.executable).resolve().read_bytes()[: 1 << 16]
    path = tmp_path / "damaged"
    for length in (0, 3, 4, 5, 20, 63, 64, 65, 100, 200, 500, 4096):
        path.write_bytes(whole[:length])
        needed(path)
    for place in range(4, 700, 5):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        needed(path)
