# SPDX-License-Identifier: Apache-2.0
"""What a person is told of a failed step: image, step, line of image.yaml, and the root to enter."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cellblock import paths
from cellblock.build import BuildRequest, build_images
from cellblock.errors import CellblockError
from cellblock.events import Events
from cellblock.store.failed_roots import remove_kept_roots

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(os.geteuid() != 0, reason="building images needs root"),
]
VARIANT = "debian13"
_NAME = f"failing{os.getpid()}"

Fail = Callable[..., CellblockError]


@pytest.fixture
def fail(definitions: Path) -> Iterator[Fail]:
    """Declares an image on base, which fails to build, and gives the error."""
    file = definitions / _NAME / "image.yaml"
    file.parent.mkdir()

    def failing(text: str, *, keep: bool = False) -> CellblockError:
        file.write_text(f"summary: test\n{text}")
        request = BuildRequest((_NAME,), VARIANT, definitions=definitions, keep_failed=keep)
        with pytest.raises(CellblockError) as raised:
            build_images(request, Events())
        return raised.value

    yield failing
    for place in (paths.cache() / "failed").glob(f"{_NAME}*"):
        subprocess.run(["rm", "-r", str(place)], check=True)


def test_a_failed_line_of_run_is_named_and_no_command_of_ours_is_shown(fail: Fail) -> None:
    error = fail("from: base\nrun:\n  - echo fine\n  - |\n    echo oh no >&2\n    (exit 7)\n  - echo never\n")
    assert f"image {_NAME}: step 'run' failed with status 7\n  | " in error.message
    assert "| oh no\n" in error.message
    # A text of several lines stands where it begins.
    assert re.search(rf"\n  in /\S+/{_NAME}/image\.yaml:[56]: run: echo oh no", error.message), error.message
    assert "unshare" not in str(error)
    assert "never" not in str(error)
    assert f"repeat it with: python3 build.py build {_NAME} --variant {VARIANT}" in error.hint


def test_a_missing_artifact_is_named_with_the_image_and_the_line(fail: Fail) -> None:
    text = "from: base\nartifacts:\n  - from: base\n    files:\n      /etc/passwd: /a\n      /no/such: /b\n"
    error = fail(text)
    assert re.search(
        rf"{_NAME}/image\.yaml:7: artifacts\.files: there is no /no/such in image base$", error.message
    )


def test_compiling_that_fails_names_its_line(fail: Fail) -> None:
    text = "build: {in: base, sources: {spank_jail: /src}, run: ['true', 'false'], output: /out}\n"
    assert re.search(rf"{_NAME}/image\.yaml:2: build\.run: false$", fail(text).message)
    error = fail(text.replace(", 'false'", ""))
    assert re.search(rf"{_NAME}/image\.yaml:2: build\.output: compiling made no folder /out$", error.message)


def test_a_kept_root_is_named_can_be_entered_and_outlives_the_next_build(fail: Fail) -> None:
    error = fail("from: base\nrun: [echo half > /etc/half-done, 'false']\n", keep=True)
    found = re.search(r"look into the root with: sh (\S+);", error.hint)
    assert found, error.hint
    build_images(BuildRequest(("base",), VARIANT), Events())
    fail("from: base\nrun: [echo other, 'false']\n")
    show = ["sh", found[1], "cat", "/etc/half-done", "/etc/os-release"]
    for _ in range(2):
        done = subprocess.run(show, capture_output=True, text=True, check=True)
        assert done.stdout.startswith("half\n")
        assert "trixie" in done.stdout
    assert not list((paths.cache() / "work").glob(f"{os.getpid()}-*"))


def test_a_kept_root_of_a_compilation_is_the_workshop(fail: Fail) -> None:
    text = "build: {in: base, sources: {spank_jail: /src}, run: [cd /src; false], output: /out}\n"
    found = re.search(r"look into the root with: sh (\S+);", fail(text, keep=True).hint)
    assert found
    done = subprocess.run(["sh", found[1], "ls", "/src"], capture_output=True, text=True, check=True)
    assert "Makefile" in done.stdout


def test_trimming_removes_kept_roots(fail: Fail, tmp_path: Path) -> None:
    (tmp_path / "failed/x").mkdir(parents=True)
    remove_kept_roots(tmp_path)
    assert not (tmp_path / "failed").exists()


def test_ctrl_c_in_verify_says_how_to_verify(definitions: Path) -> None:
    build_images(BuildRequest(("base",), VARIANT), Events())
    argv = [sys.executable, "-m", "cellblock.cli", "verify", "base", "--variant", VARIANT, "--log", "plain"]
    process = subprocess.Popen(argv, stderr=subprocess.PIPE, text=True)
    assert process.stderr
    for line in process.stderr:
        if "bootstrap" in line:
            break
    process.send_signal(signal.SIGINT)
    rest = process.communicate(timeout=120)[1]
    assert process.returncode == 130, rest
    assert "error: interrupted: what was being made was thrown away, what was built before stays" in rest
    assert f"next: go on with: python3 build.py verify base --variant {VARIANT}" in rest


@pytest.mark.parametrize(
    ("user", "said"),
    [
        ("{name: bob, uid: 33, gid: 7777}", "user bob: uid 33 is that of the line of /etc/passwd above"),
        ("{name: bob, uid: 7777, gid: 33}", "user bob: gid 33 is that of the line of /etc/group above"),
        (
            "{name: www-data, uid: 7777, gid: 7777}",
            "/etc/passwd has the name with another uid",
        ),
    ],
)
def test_a_user_whose_ids_a_package_has_taken_fails_the_build(fail: Fail, user: str, said: str) -> None:
    error = fail(f"from: base\npackages: [hello]\nusers: [{user}]\n")
    assert f"image {_NAME}: step 'make users' failed with status 1" in error.message
    assert "www-data:x:33:" in error.message
    assert said in error.message
    assert "if grep" not in error.message
