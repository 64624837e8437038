# SPDX-License-Identifier: Apache-2.0
"""`build.py diff | graph | report` as a person uses them, and the printers of verify, why and plan."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from cellblock.cli.images.inspect_text import InspectView
from cellblock.inspect.compare import Difference
from cellblock.inspect.planned_layers import PlannedLayer, VariantPlan
from cellblock.inspect.why import why_changed
from cellblock.store.image_store import image_store
from cellblock.store.record import write_record
from tests.inspect.variant import build_variant


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache in which two variants were built."""
    monkeypatch.setenv("CELLBLOCK_CACHE", str(tmp_path))
    for variant in ("debian12", "debian13"):
        _, records = build_variant(image_store(), variant)
        for record in records.values():
            write_record(record)
    return tmp_path


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "cellblock.cli", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "80"},
        check=False,
    )


@pytest.mark.usefixtures("cache")
def test_diff_of_two_images_says_what_differs_and_exits_1() -> None:
    done = run("diff", "base:debian13", "worker:debian13")
    assert done.returncode == 1, done.stderr
    assert "base:debian13 -> worker:debian13" in done.stdout
    assert "    +   /usr/sbin/slurmd  file 0644 0:0 900.0 kB" in done.stdout
    assert "only new" in done.stdout
    found = json.loads(run("diff", "base:debian13", "worker:debian13", "--json").stdout)
    assert found["equal"] is False
    assert ("/usr/sbin/slurmd", "added") in [
        (each["path"], each["change"]) for each in found["images"][0]["files"]
    ]


@pytest.mark.usefixtures("cache")
def test_diff_of_equal_images_exits_0() -> None:
    done = run("diff", "worker:debian13", "worker:debian12")
    assert (done.returncode, done.stderr) == (0, "")
    assert "the same image" in done.stdout


@pytest.mark.usefixtures("cache")
def test_diff_of_variants_compares_all_their_images() -> None:
    done = run("diff", "debian12", "debian13", "--json")
    assert done.returncode == 0
    assert [each["new"]["name"] for each in json.loads(done.stdout)["images"]] == [
        "base:debian13",
        "jail:debian13",
        "worker:debian13",
    ]


@pytest.mark.usefixtures("cache")
def test_trouble_of_diff_is_status_2_because_1_means_different(cache: Path) -> None:
    done = run("diff", "worker:debian13", "login:debian13")
    assert (done.returncode, done.stdout) == (2, "")
    assert "login of debian13 was not built" in done.stderr
    assert run("diff", "worker:debian13", "debian13").returncode == 2
    for blob in (cache / "images" / "blobs" / "sha256").iterdir():
        if not blob.read_bytes().startswith(b"{"):
            blob.write_bytes(b"damaged")
    assert run("diff", "worker:debian13", "jail:debian13").returncode == 2


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize(
    ("image_format", "start"), [("mermaid", "flowchart"), ("dot", "digraph"), ("svg", "<svg")]
)
def test_graph_shows_the_sizes_of_what_was_built(image_format: str, start: str) -> None:
    done = run("graph", "--format", image_format, "-v", "debian13")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(start)
    assert "2 layers, " in done.stdout
    assert "not built here" in done.stdout


@pytest.mark.usefixtures("cache")
def test_an_image_that_is_gone_is_not_built_whatever_the_record_says(cache: Path) -> None:
    shutil.rmtree(cache / "images")
    assert "MB" not in run("graph", "-v", "debian13").stdout
    assert run("report", "-v", "debian13", "-o", str(cache / "page.html")).returncode == 1


def test_a_graph_in_an_unknown_format_is_wrong_usage() -> None:
    done = run("graph", "--format", "png")
    assert done.returncode == 2
    assert "use one of: mermaid, dot, svg" in done.stderr


@pytest.mark.usefixtures("cache")
def test_report_writes_one_page_and_says_where(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    done = run("report", "-v", "debian13", "--output", str(page))
    assert done.returncode == 0, done.stderr
    assert str(page) in done.stdout
    assert page.read_text().startswith("<!doctype html>")


def test_report_without_a_build_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CELLBLOCK_CACHE", str(tmp_path))
    done = run("report", "-v", "debian12", "-o", str(tmp_path / "page.html"))
    assert done.returncode == 1
    assert "next: build them: `python3 build.py build -v debian12`" in done.stderr
    assert not (tmp_path / "page.html").exists()


@pytest.fixture
def printed() -> tuple[InspectView, io.StringIO]:
    out = io.StringIO()
    return InspectView(Console(file=out, width=120, highlight=False, markup=False)), out


def test_differences_of_verify_are_shown_by_layer(printed: tuple[InspectView, io.StringIO]) -> None:
    view, out = printed
    view.differences(
        [
            Difference(2, "etc/key", ("content, 2 bytes as before",), ("@@ -1 +1 @@", "-1", "+2")),
            Difference(None, "", ("configuration: Cmd null -> []",)),
        ]
    )
    assert out.getvalue().splitlines() == [
        "  layer 2",
        "    /etc/key: content, 2 bytes as before",
        "      @@ -1 +1 @@",
        "      -1",
        "      +2",
        "  image",
        "    configuration: Cmd null -> []",
    ]


def test_causes_are_indented_below_what_they_caused(printed: tuple[InspectView, io.StringIO]) -> None:
    view, out = printed
    inputs = {"slurm": ({"package munge": "1 x"}, {"package munge": "2 y"})}
    view.why("worker", why_changed({"image slurm": "1"}, {"image slurm": "2"}, inputs.get))
    view.why("login", ())
    assert out.getvalue().splitlines() == [
        "worker is built again because",
        "  image slurm changed because",
        "    package munge 1 -> 2",
        "login: nothing changed since it was built",
    ]


def test_a_name_from_an_image_cannot_move_the_cursor(printed: tuple[InspectView, io.StringIO]) -> None:
    view, out = printed
    view.differences([Difference(1, "a\x1b[2J\r\nb\udcff", ("mode",))])
    assert out.getvalue().splitlines()[1] == r"    /a\x1b[2J\x0d\x0ab\xff: mode"


@pytest.mark.parametrize("width", [60, 80, 109])
def test_a_plan_on_a_narrow_terminal_keeps_its_units(width: int) -> None:
    out = io.StringIO()
    title = "packages shared by jail-init-toolchain, toolchain"
    layer = PlannedLayer("b", "shared", title, 123_400_000, 290_500_000, 275)
    names = ("base", "slurm", "toolchain", "controller", "jail-init-toolchain", "worker", "jail")
    view = InspectView(Console(file=out, width=width, highlight=False, markup=False))
    view.plan(VariantPlan("debian13", dict.fromkeys(names, (layer,))))
    text = out.getvalue()
    assert "275  ~123.4 MB  ~290.5 MB" in text
    assert all(len(line) <= width for line in text.splitlines() if "~" in line)
    assert "…" not in text


def test_a_plan_shows_each_layer_once_and_what_a_node_pulls(printed: tuple[InspectView, io.StringIO]) -> None:
    view, out = printed
    base = PlannedLayer("b", "base", "packages of base", 25_000_000, 78_000_000, 75, is_built=True)
    jail = PlannedLayer("j", "packages", "packages of jail", 90_000_000, 290_000_000, 36)
    files = PlannedLayer("f", "files", "files of worker", None, None)
    view.plan(VariantPlan("debian13", {"worker": (base, files), "jail": (base, jail)}))
    lines = [" ".join(line.split()) for line in out.getvalue().splitlines()]
    assert "packages of base 75 25.0 MB 78.0 MB worker, jail" in lines
    assert "packages of jail 36 about 90.0 MB about 290.0 MB jail" in lines
    assert "files of worker ? ? worker" in lines
    assert "jail 2 115.0 MB 368.0 MB" in lines
    assert "A node pulls 115.0 MB for worker + jail (368.0 MB unpacked); sharing saves 25.0 MB." in lines
    assert lines[-1].startswith("Layers of unknown size")
