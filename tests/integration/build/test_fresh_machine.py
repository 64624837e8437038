# SPDX-License-Identifier: Apache-2.0
"""The first commands of README.md on machines that have only python3 and git: roots of newer Debians."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cellblock.bench.harness.debian_root import entered
from cellblock.build.mirrors import archive
from cellblock.paths import PROJECT
from cellblock.variants import load_variants
from tests.launcher.test_launcher import copy_of_the_tree

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(
        not os.environ.get("CELLBLOCK_FRESH_MACHINES"),
        reason="minutes, in which it installs: `python3 build.py test --thorough`",
    ),
]

Run = Callable[..., subprocess.CompletedProcess[str]]

# How this machine reaches archives: a proxy's certificates, an index of its own.
_OF_THIS_MACHINE = ("etc/resolv.conf", "etc/pip.conf", "etc/ssl/certs/ca-certificates.crt")
_VARIABLES = ("http_proxy", "https_proxy", "no_proxy", "PIP_INDEX_URL", "PIP_CERT", "PIP_DEFAULT_TIMEOUT")


@pytest.fixture(scope="module", params=["debian13", "debian14"])
def machine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Runs a command in a root of that release; what it says is in English."""
    if os.geteuid() != 0 or not shutil.which("mmdebstrap"):
        pytest.skip("makes roots of Debian, which takes root and mmdebstrap")
    variant = load_variants(PROJECT / "images" / "variants.yaml")[request.param]
    root = tmp_path_factory.mktemp("machine") / request.param
    command = ["mmdebstrap", "--quiet", "--variant=minbase", "--include=python3,git,ca-certificates"]
    # Of a mirror that stands still.
    command += [
        '--aptopt=Acquire::Check-Valid-Until "false"',
        variant.distribution.codename,
        str(root),
        *archive(variant).lines,
    ]
    subprocess.run(command, check=True)
    for name in _OF_THIS_MACHINE:
        if Path("/", name).is_file():
            shutil.copy(Path("/", name), root / name)
    # As in images of containers, and on a machine whose lists nobody has fetched yet.
    shutil.rmtree(root / "var/lib/apt/lists")
    copy_of_the_tree(root / "root" / "my cellblock")
    environment = {name: os.environ[name] for name in _VARIABLES if name in os.environ}
    environment |= {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin",
        "HOME": "/root",
        "LC_ALL": "C",
    }
    with entered(root) as enter:

        def run(*words: str) -> subprocess.CompletedProcess[str]:
            typed = [*enter, "env", "-i", *(f"{name}={value}" for name, value in environment.items())]
            typed += ["env", "--chdir=/root/my cellblock", *words]
            return subprocess.run(typed, capture_output=True, text=True, timeout=1200, check=False)

        yield run


def test_the_first_commands_of_a_fresh_machine(machine: Run) -> None:
    build_py = ("python3", "build.py")
    assert machine(*build_py, "--version").stdout.startswith("Cellblock ")
    assert "debian13" in machine(*build_py, "targets").stdout

    wrong = machine(*build_py, "plna")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "Did you mean 'plan'" in wrong.stderr
    assert machine("test", "-e", ".venv").returncode == 1

    alone = machine("unshare", "--net", *build_py, "plan")
    assert alone.returncode == 1
    assert "could not fetch all lists of packages" in alone.stderr
    assert "next: this looks like no network" in alone.stderr

    planned = machine(*build_py, "plan")
    assert planned.returncode == 0, planned.stderr
    assert "packages of base" in planned.stdout
    assert "installing" in planned.stderr
    assert "Warning" not in planned.stderr

    looked = machine(*build_py, "doctor")
    assert not [line for line in looked.stdout.splitlines() if line.startswith("missing")]
    assert looked.stderr == ""
    # What Python says will be gone is said of our own files only: others' packages are not ours to change.
    said = machine(".venv/bin/python", "-I", "-W", "default", "-m", "cellblock.cli", "targets").stderr
    assert [
        line for line in said.splitlines() if "Warning" in line and "/my cellblock/cellblock/" in line
    ] == []
