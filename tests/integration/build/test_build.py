# SPDX-License-Identifier: Apache-2.0
"""Builds for real, on top of the project's own base image."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cellblock import paths
from cellblock.build import BuildRequest, BuildResult, build_images
from cellblock.build.unpack_layer import unpack_layer
from cellblock.engine.recipe import StepFailed
from cellblock.engine.storage import ContainersStorage
from cellblock.errors import CellblockError, DefinitionError
from cellblock.events import Event, Events, SubjectState
from cellblock.process import Programs
from cellblock.store.image_store import image_store
from cellblock.store.record import read_record
from tests.memory_disk import memory_disk

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(os.geteuid() != 0, reason="building images needs root"),
]
VARIANT = "debian13"


@pytest.fixture
def image(definitions: Path, request: pytest.FixtureRequest) -> Callable[..., str]:
    """Declares an image on base under a name no other test uses; removes it afterwards."""
    names: list[str] = []

    def declare(text: str, name: str = "one") -> str:
        name = f"test{os.getpid()}-{name}"
        (definitions / name).mkdir(exist_ok=True)
        (definitions / name / "image.yaml").write_text(f"summary: test\nfrom: base\n{text}")
        names.append(name)
        return name

    def remove() -> None:
        image_store().untag([reference for name in names for reference in references(name)])
        for reference in ContainersStorage(Programs()).images():
            if any(f"/{name}:" in reference for name in names):
                subprocess.run(["buildah", "rmi", "--force", reference], capture_output=True, check=False)

    request.addfinalizer(remove)
    return declare


def build(definitions: Path, *images: str, events: Events | None = None) -> BuildResult:
    request = BuildRequest(images, VARIANT, definitions=definitions, load=True)
    return build_images(request, events or Events())


def references(name: str) -> list[str]:
    return [reference for reference in image_store().references() if f"/{name}:" in reference]


def working_roots(pid: int) -> list[Path]:
    """Folders that process `pid` left where it makes layers."""
    return list((paths.cache() / "work").glob(f"{pid}-*"))


def read(reference: str, *argv: str) -> str:
    container = subprocess.run(
        ["buildah", "from", "--pull-never", reference], capture_output=True, text=True, check=True
    ).stdout.strip()
    try:
        run = ["buildah", "run", "--isolation", "chroot", container, "--", *argv]
        return subprocess.run(run, capture_output=True, text=True, check=True).stdout
    finally:
        subprocess.run(["buildah", "rm", container], capture_output=True, check=True)


def test_an_image_is_built_once_and_found_by_its_key(definitions: Path, image: Callable[..., str]) -> None:
    name = image("run: ['echo $((6*7)) > /answer']\nenv: {A: b c}\n")
    first = build(definitions, name)
    assert name in first.built
    assert read(first.images[name].reference, "cat", "/answer") == "42\n"
    assert read(first.images[name].reference, "printenv", "A") == "b c\n"
    second = build(definitions, name)
    assert second.built == ()
    assert second.images[name].id == first.images[name].id


def test_going_back_to_an_earlier_definition_finds_its_image(
    definitions: Path, image: Callable[..., str]
) -> None:
    name = image("run: [echo 1 > /v]\n")
    first = build(definitions, name)
    image("run: [echo 2 > /v]\n")
    assert build(definitions, name).built == (name,)
    image("run: [echo 1 > /v]\n")
    again = build(definitions, name)
    assert again.built == ()
    assert again.images[name].id == first.images[name].id
    assert read(again.images[name].reference, "cat", "/v") == "1\n"


def test_what_is_called_cached_is_not_counted_as_built(definitions: Path, image: Callable[..., str]) -> None:
    def counted(name: str) -> set[str]:
        states: dict[str, str] = {}

        def note(event: Event) -> None:
            if isinstance(event, SubjectState):
                states[event.subject] = event.state

        events = Events()
        events.subscribe(note)
        result = build(definitions, name, events=events)
        ends = {each: states[each] for each in result.images}
        assert {each for each, state in ends.items() if state == "done"} == set(result.built), ends
        return set(result.built)

    name = image("run: [echo 7 > /cached]\n")
    counted(name)
    assert counted(name) == set()
    # No layer depends on it; the image is another one all the same.
    image("run: [echo 7 > /cached]\nenv: {A: b}\n")
    assert counted(name) == {name}
    # As another checkout finds it: that has no such image, and the machine has its layers.
    image_store().untag(references(name))
    assert counted(name) == set()


def test_only_the_newest_builds_of_an_image_are_kept(definitions: Path, image: Callable[..., str]) -> None:
    for number in range(5):
        name = image(f"run: [echo {number} > /v]\n")
        newest = build(definitions, name).images[name]
    builds = [reference for reference in references(name) if ".key-" in reference]
    assert len(builds) == 3
    assert read(newest.reference, "cat", "/v") == "4\n"
    image("run: [echo 3 > /v]\n")
    assert build(definitions, name).built == ()


def test_files_are_laid_over_without_touching_what_is_there(
    definitions: Path, image: Callable[..., str]
) -> None:
    name = image("run: [ls -ld /tmp /var/run >/dev/null]\n")
    files = definitions / name / "files"
    (files / "tmp").mkdir(parents=True)
    (files / "var/run").mkdir(parents=True)
    (files / "var/run/through-a-symlink").write_text("x")
    (files / "usr/bin").mkdir(parents=True)
    (files / "usr/bin/hello.j2").write_text("#!/bin/sh\necho {{ variant.name }}\n")
    (files / "usr/bin/hello.j2").chmod(0o755)
    reference = build(definitions, name).images[name].reference
    assert read(reference, "hello") == "debian13\n"
    assert read(reference, "stat", "-c", "%a %u", "/tmp", "/var/run/through-a-symlink", "/usr/bin/hello") == (
        "1777 0\n644 0\n755 0\n"
    )
    assert read(reference, "readlink", "/var/run") == "/run\n"
    assert not Path("/run/through-a-symlink").exists()


def test_an_image_of_artifacts_holds_them_and_compiles_in_a_throwaway(
    definitions: Path, image: Callable[..., str]
) -> None:
    out = image("", "out")
    base = "build: {in: base, sources: {docs: /src}, run: [mkdir /out, ls /src > /out/list], output: /out}\n"
    (definitions / out / "image.yaml").write_text(f"summary: o\n{base}")
    name = image(f"artifacts: {{from: {out}, files: {{/out/list: /opt/}}}}\n")
    assert "decisions\n" in read(build(definitions, name).images[name].reference, "cat", "/opt/list")


def test_no_image_holds_the_identity_or_the_leftovers_of_its_build(
    definitions: Path, image: Callable[..., str]
) -> None:
    name = image("run: [echo 0123 > /etc/machine-id, touch /tmp/x /var/log/dpkg.log /etc/passwd-]\n")
    reference = build(definitions, name).images[name].reference
    listing = read(reference, "sh", "-c", "cat /etc/machine-id; ls -A /tmp /var/log /etc /usr/sbin")
    assert "0123" not in listing
    for leftover in ("dpkg.log", "passwd-", "policy-rc.d", "\nx\n"):
        assert leftover not in listing


def test_a_failed_step_says_image_step_last_lines_and_how_to_repeat_it(
    definitions: Path, image: Callable[..., str]
) -> None:
    name = image("run: [echo about to fail, exit 9]\n")
    with pytest.raises(StepFailed) as raised:
        build(definitions, name)
    text = str(raised.value)
    assert f"image {name}: step 'run' failed with status" in text
    assert "| about to fail" in text
    assert f"python3 build.py build {name} --variant {VARIANT}" in text
    assert references(name) == []
    assert working_roots(os.getpid()) == []


def test_an_unknown_package_is_named_with_the_place_to_correct(
    definitions: Path, image: Callable[..., str]
) -> None:
    name = image("packages: [no-such-package-anywhere]\n")
    with pytest.raises(DefinitionError, match="Unable to locate package no-such-package-anywhere") as raised:
        build(definitions, name)
    assert f"{definitions}/{name}/image.yaml" in str(raised.value)
    assert "correct `packages`" in raised.value.hint


def test_a_failure_ends_the_builds_beside_it(definitions: Path, image: Callable[..., str]) -> None:
    build(definitions, "base")
    bad, slow = image("run: [sleep 1, exit 1]\n", "bad"), image("run: [sleep 300]\n", "slow")
    states: dict[str, str] = {}
    events = Events()

    def note(event: Event) -> None:
        if isinstance(event, SubjectState):
            states[event.subject] = event.state

    events.subscribe(note)
    started = time.monotonic()
    with pytest.raises(StepFailed, match=bad):
        build(definitions, bad, slow, events=events)
    assert time.monotonic() - started < 300
    assert states[bad] == "failed"
    assert states[slow] == "stopped"
    assert working_roots(os.getpid()) == []


CLI = """
import sys
from pathlib import Path
from cellblock.build import BuildRequest, build_images
from cellblock.errors import CellblockError
from cellblock.events import Events
_, name, variant, definitions = sys.argv
try:
    build_images(BuildRequest((name,), variant, definitions=Path(definitions)), Events())
except CellblockError as error:
    print(error)
    sys.exit(error.exit_status)
"""


def run_cli(definitions: Path, name: str) -> subprocess.Popen[str]:
    argv = [sys.executable, "-c", CLI, name, VARIANT, str(definitions)]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)


def process_runs(marker: str) -> bool:
    for cmdline in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if marker.encode() in cmdline.read_bytes() and cmdline.parent.name != str(os.getpid()):
                return True
        except OSError:
            continue
    return False


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGKILL], ids=["ctrl-c", "kill-9"])
def test_an_ended_build_tags_nothing_leaves_nothing_running_and_the_next_one_works(
    definitions: Path, image: Callable[..., str], sign: signal.Signals
) -> None:
    build(definitions, "base")
    # Of this run alone: one that failed may have left its own running.
    seconds = 20000 + time.monotonic_ns() % 1_000_000
    name = image(f"run: [sleep {seconds}]\n", sign.name.lower())
    process = run_cli(definitions, name)
    deadline = time.monotonic() + 300
    while not process_runs(f"sleep\0{seconds}"):
        if time.monotonic() >= deadline:
            process.kill()
            pytest.fail(f"the step does not run:\n{process.communicate(timeout=60)[0]}")
        time.sleep(0.05)
    process.send_signal(sign)
    output, _ = process.communicate(timeout=180)
    if sign == signal.SIGINT:
        assert process.returncode == 130
        assert "interrupted" in output
        assert working_roots(process.pid) == []
    deadline = time.monotonic() + 60
    while process_runs(f"sleep\0{seconds}"):
        assert time.monotonic() < deadline, "the step still runs"
        time.sleep(0.05)
    assert references(name) == []
    image("run: [touch /done]\n", sign.name.lower())
    assert name in build(definitions, name).built
    assert working_roots(process.pid) == []


def test_two_builds_of_one_image_build_it_once(definitions: Path, image: Callable[..., str]) -> None:
    build(definitions, "base")
    name = image("run: [sleep 3, date +%N > /built]\n")
    results: list[BuildResult] = []
    threads = [threading.Thread(target=lambda: results.append(build(definitions, name))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert len(results) == 2
    assert results[0].images[name].id == results[1].images[name].id


def test_a_mirror_that_does_not_answer_is_named(tmp_path: Path, definitions: Path) -> None:
    shutil.rmtree(definitions / "base")
    name = f"test{os.getpid()}-unreachable"
    (definitions / name).mkdir()
    (definitions / name / "image.yaml").write_text("summary: x\n")
    # Port 9 (discard) of loopback: refused at once.
    request = BuildRequest((), VARIANT, ("http://127.0.0.1:9/debian",), definitions=definitions)
    with pytest.raises(CellblockError, match=r"127\.0\.0\.1:9") as raised:
        build_images(request, Events())
    assert "--mirror" in raised.value.hint
    assert references(name) == []


def test_without_skopeo_the_message_says_so(
    definitions: Path, image: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = image("run: [touch /x]\n")
    build_images(BuildRequest((name,), VARIANT, definitions=definitions), Events())
    for program in ("dpkg-query", "buildah"):
        (tmp_path / program).symlink_to(str(shutil.which(program)))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CellblockError, match="skopeo is not installed"):
        build(definitions, name)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with memory_disk(tmp_path / "small", "size=40m") as folder:
        yield folder


def test_a_full_disk_is_named_and_the_next_build_goes_on(
    definitions: Path, image: Callable[..., str], small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk has room for debs and what is resolved, and none for a root."""
    build(definitions, "base")
    cache = paths.cache()
    shutil.copytree(cache / "resolved", small_disk / "resolved")
    (small_disk / "debs").symlink_to(cache / "debs")
    monkeypatch.setenv("CELLBLOCK_CACHE", str(small_disk))
    with pytest.raises(CellblockError) as raised:
        build_images(BuildRequest(("base",), VARIANT, definitions=definitions), Events())
    assert "free disk space" in raised.value.hint
    assert image_store().references() == {}
    assert list((small_disk / "work").glob("*")) == []
    subprocess.run(["mount", "-o", "remount,size=1g", str(small_disk)], check=True)
    assert "base" in build_images(BuildRequest(("base",), VARIANT, definitions=definitions), Events()).built


@pytest.mark.parametrize("name", ["worker", "login", "jail"])
def test_a_plugin_of_another_release_train_is_refused(
    definitions: Path, image: Callable[..., str], name: str, foreign_plugins: Path
) -> None:
    """What was compiled for Debian 12's Slurm, copied into images of Debian 13's."""
    plugins, refused = image("", "plugins"), image("", name)
    lines = "{in: base, sources: {" + f"{foreign_plugins}: /src" + "}, run: [cp -a /src /out], output: /out}"
    (definitions / plugins / "image.yaml").write_text(f"summary: foreign\nbuild: {lines}\n")
    shutil.copytree(paths.PROJECT / "images" / "slurm", definitions / "slurm")
    shutil.copytree(paths.PROJECT / "images" / name, definitions / refused, dirs_exist_ok=True)
    text = (definitions / refused / "image.yaml").read_text()
    (definitions / refused / "image.yaml").write_text(text.replace("from: plugins", f"from: {plugins}"))
    said = r"spank_jail\.so is built for Slurm 22\.05, and this image has .*24\.11"
    with pytest.raises(StepFailed, match=said):
        build(definitions, refused)


@pytest.fixture(scope="module")
def foreign_plugins(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of Debian 12's plugins image, on this machine."""
    folder = tmp_path_factory.mktemp("foreign") / "out"
    images = build_images(BuildRequest(("plugins",), "debian12"), Events()).images
    stored = image_store().image(images["plugins"].reference)
    unpacked = folder.parent / "root"
    record = read_record("plugins", "debian12")
    assert record
    assert record.digest == stored.digest
    unpack_layer(image_store(), record.layers[0], unpacked)
    (unpacked / "out").rename(folder)
    return folder
