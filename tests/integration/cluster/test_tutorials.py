# SPDX-License-Identifier: Apache-2.0
"""A newcomer types what the tutorials say, line by line, in a copy of the checkout.

docs/getting-started.md has a test of its own (test_first_cluster.py).
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from cellblock.cluster import stop
from cellblock.events import Events
from cellblock.oci.registry import Registry
from cellblock.paths import PROJECT
from tests.documented import blocks_for, type_line
from tests.integration.checkout import copy_checkout
from tests.integration.conftest import default_variant
from tests.integration.registry import RunningRegistry, repository_of
from tests.integration.state_folder import state_folder
from tests.ports import free_port

pytestmark = pytest.mark.integration

_LAUNCH = "python3 build.py "
_NAME = f"tutorial{os.getpid()}"
_VOLUME = "/var/lib/cellblock/clusters/cellblock/volume"
_CLUSTER = ("up", "shell", "down", "status")
# Seconds for one command; the first one may build all images.
_TIMEOUT_S = 1500


@dataclass(frozen=True)
class File:
    path: str
    text: str


def parts_of(page: str) -> Iterator[str | File]:
    """Lines to type and files to write, as the page has them."""
    text = (PROJECT / "docs" / page).read_text()
    for line, path, content in re.findall(
        r'^    (\S[^\n]*)$|^```yaml title="([^"\n]+)"\n(.*?)^```$', text, re.M | re.S
    ):
        yield line or File(path, content)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of the project."""
    return copy_checkout(tmp_path)


@pytest.fixture
def own_cluster() -> Iterator[str]:
    """Options for a cluster of the test's own; it goes in the end, whatever happened.

    Not called `cluster`: tests that ask for that run with one for each variant, which lives on after them.
    """
    if os.geteuid() != 0:
        pytest.skip("a cluster needs root")
    with state_folder():
        try:
            yield f"--ssh-port {free_port()} --variant {default_variant()}"
        finally:
            stop(_NAME, Events())


def of_this_test(line: str, options: str) -> str:
    """The line for the copy of the checkout and the cluster of the test."""
    found = re.match(rf"{_LAUNCH}(\w+)", line)
    program = f"{sys.executable} -m cellblock.cli "
    state = os.environ.get("CELLBLOCK_STATE", "/var/lib/cellblock")
    line = line.replace(_VOLUME, f"{state}/clusters/{_NAME}/volume")
    if found and found[1] in _CLUSTER:
        added = f" --name {_NAME}" + (f" {options}" if found[1] == "up" else "")
        return line.replace(found[0], f"{program}{found[1]}{added}", 1)
    return line.replace(_LAUNCH, program)


def follow(page: str, checkout: Path, options: str = "", repository: str = "") -> dict[str, list[str]]:
    """Do what the page says; returns what each line printed, each time that it was typed."""
    said: dict[str, list[str]] = {}
    for part in parts_of(page):
        if isinstance(part, File):
            (checkout / part.path).parent.mkdir(parents=True, exist_ok=True)
            (checkout / part.path).write_text(part.text)
            continue
        done = subprocess.run(
            ["sh", "-c", of_this_test(part, options).replace("HOST/PATH", repository)],
            cwd=checkout,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=_TIMEOUT_S,
        )
        assert done.returncode == 0, f"{page}: {part}\n{done.stdout}"
        said.setdefault(part, []).append(done.stdout)
    return said


def test_an_image_of_ones_own(checkout: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("a build needs root")
    said = follow("tutorial-image.md", checkout)
    assert "images/tools/image.yaml:4" in said["python3 build.py targets --json || test $? = 2"][0]
    assert "Small tools that jobs of our group use" in said["python3 build.py targets"][0]
    assert "jq" in said["python3 build.py diff base tools || test $? = 1"][0]
    assert "packages" in said["python3 build.py why tools"][0]
    assert len(said["python3 build.py build tools"]) == 3


def test_building_in_ci(checkout: Path, registry: RunningRegistry, request: pytest.FixtureRequest) -> None:
    if os.geteuid() != 0:
        pytest.skip("a build needs root")
    path = repository_of(request)
    follow("tutorial-ci.md", checkout, repository=f"{registry.host}/{path}")
    assert "debian13" in Registry(registry.host).repository(f"{path}/base").tags()
    assert (checkout / "locks/debian13.lock.yaml").exists()


def test_upgrading_a_jail_under_jobs(checkout: Path, own_cluster: str) -> None:
    said = follow("tutorial-upgrade.md", checkout, own_cluster)
    outputs = {line: outputs[0] for line, outputs in said.items()}
    assert "our cluster\ndata" in outputs["python3 build.py shell cat /etc/motd /srv/result"]
    assert " R " in outputs["python3 build.py shell --user cellblock squeue --noheader --states=running"]
    assert "figlet" in next(text for line, text in outputs.items() if line.endswith("--plan"))


def test_changing_an_image(checkout: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("a build needs root")
    type_line("python3 build.py build login", checkout)
    (variant,) = [
        block for block in blocks_for("change-image.md", "test_changing_an_image") if block.language == "yaml"
    ]
    said = {
        block.first.split(" #")[0].strip(): type_line("; ".join(block.lines), checkout)
        for block in blocks_for("change-image.md", "test_changing_an_image")
        if block != variant
    }
    assert "tree" in said["python3 build.py why login"]
    assert "usr/bin/tree" in said["python3 build.py diff slurm login --files || test $? = 1"]
    variants = checkout / "images/variants.yaml"
    assert variants.read_text().rstrip().rpartition("\n\n")[2].startswith("variants:")
    variants.write_text(f"{variants.read_text().rstrip()}\n{variant.text.partition(chr(10))[2]}")
    assert "site" in type_line("python3 build.py targets", checkout)
