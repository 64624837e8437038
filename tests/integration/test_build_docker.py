"""The docker engine and the rendered Containerfile, with a real dockerd and the builders of this machine.

Definitions of few packages, from a local archive; what each builder makes of them is compared path by path.
"""

from __future__ import annotations

import fnmatch
import json
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import docker
import pytest

from cellblock import paths
from cellblock.bench.build_peers import docker_commands
from cellblock.bench.dockerd import private_dockerd
from cellblock.build import BuildRequest, BuildResult, build_images
from cellblock.build.containerfile import RenderRequest, rendered
from cellblock.engine import apt
from cellblock.engine.archive_server import serve
from cellblock.engine.docker import DockerEngine
from cellblock.engine.recipe import StepFailed
from cellblock.engine.stages import NAME, SOURCES_ARGUMENT
from cellblock.errors import CellblockError
from cellblock.events import Event, Events, Output, StepStarted, SubjectState
from cellblock.process import Interrupted
from cellblock.variants import host_release

from . import trees
from .archive import make_archive

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(os.geteuid() != 0, reason="building images needs root"),
    pytest.mark.skipif(
        shutil.which("dockerd") is None, reason="dockerd is not installed (apt-get install docker.io)"
    ),
    pytest.mark.skipif(
        host_release().get("ID") != "debian",
        reason="the local archive is filled from this machine's own Debian mirror, and it has none",
    ),
]
VARIANT = "debian13"
ROOT, TOOL, TOP, CHILD = "dockertest-root", "dockertest-tool", "dockertest-top", "dockertest-child"

DEFINITIONS = {
    ROOT: """
summary: a root
packages: [passwd]
users: [{name: munge, uid: 65520, gid: 65520}]
per_machine: [/etc/machine-id, /var/lib/dbus/machine-id]
env: {LANG: C.UTF-8}
run:
  - ln -s hostname /etc/over-a-link
  - rm -f /etc/machine-id /var/lib/dbus/machine-id
""",
    TOOL: f"""
summary: compiled elsewhere
build:
  in: {ROOT}
  sources: {{docs/decisions: /src}}
  run: ["mkdir -p /out/lib", "ls /src > /out/list", "ln -s ../list /out/lib/link"]
  output: /out
""",
    TOP: f"""
summary: "everything a step can do: $HOME, \\"quotes\\" and \\\\ included"
from: {ROOT}
packages: [munge, libcap2-bin]
per_machine: [/etc/munge/munge.key]
artifacts: {{from: {TOOL}, files: {{/out/list: /opt/, /out/lib: /opt/lib}}}}
run:
  - |-
    # A comment, a case and a here-document: lines that cannot be joined by semicolons.
    case $(cat /opt/list) in
      *engine*) cat > /opt/said <<EOF
    it's "$((1 << 3))" \\\\ here
    EOF
      ;;
    esac
  - "cp /bin/true /opt/capable  # and a comment behind"
  - setcap cap_net_raw+ep /opt/capable
  - printf '%s\\n' 'a  b' '$HOME' > /opt/quoted; chown 65520:42 /opt/quoted; chmod 4750 /opt/quoted
  - "mkdir -m 1770 /opt/dir && mkfifo /opt/dir/fifo &&"
  - "ln /opt/said /opt/dir/hard"
env: {{GREETING: 'two  words "or" \\ more'}}
entrypoint: [/bin/sh, -c, 'echo "$0"']
command: [one, "two words"]
stop_signal: SIGINT
""",
    CHILD: f"summary: no command of its own\nfrom: {TOP}\nrun: [touch /child]\n",
}


@dataclass(frozen=True)
class Builds:
    """What both engines made of the definitions, and how to build more."""

    definitions: Path
    archive: str
    folder: Path
    client: docker.DockerClient
    docker: BuildResult
    buildah: BuildResult
    events: list[Event]

    def request(self, *images: str, engine: str = "docker") -> BuildRequest:
        return BuildRequest(images, VARIANT, (self.archive,), engine=engine, definitions=self.definitions)

    def declare(self, name: str, text: str) -> str:
        (self.definitions / name).mkdir(exist_ok=True)
        (self.definitions / name / "image.yaml").write_text(text)
        return name

    def docker_tree(self, reference: str) -> dict[str, trees.Entry]:
        mounted = Path(tempfile.mkdtemp(dir=self.folder))
        with trees.docker_root(self.client, reference, mounted) as root:
            return comparable(trees.entries(root))


NOT_COMPARED = (
    # The mode of / itself is in no layer: each engine shows its own folder's.
    ".",
    # apt gives it to its sandbox user when that user can reach the place where mmdebstrap works.
    "var/cache/apt/archives/partial",
    # Which packages nobody asked for, as apt notes it while installing; the default engine writes it itself.
    "var/lib/apt/extended_states",
    # Has the day of the build, or of the lock (the default engine).
    "etc/shadow",
)


def comparable(tree: dict[str, trees.Entry]) -> dict[str, trees.Entry]:
    """Without what says nothing of an image."""
    return {path: entry for path, entry in tree.items() if path not in NOT_COMPARED}


@pytest.fixture(scope="module")
def memory() -> Iterator[Path]:
    """A file system that syncs nothing: what is built here is thrown away."""
    folder = Path(tempfile.mkdtemp(prefix="cellblock-dockertest-", dir="/var/tmp"))
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4g,mode=755", "tmpfs", folder], check=True)
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)
    folder.rmdir()


@pytest.fixture(scope="module")
def environment(memory: Path) -> Iterator[pytest.MonkeyPatch]:
    """Storage, cache and daemon of these tests' own."""
    storage = memory / "storage.conf"
    storage.write_text(
        f'[storage]\ndriver = "overlay"\ngraphroot = "{memory}/graph"\nrunroot = "{memory}/run"\n'
    )
    with pytest.MonkeyPatch.context() as patch, private_dockerd(memory / "docker") as address:
        patch.setenv("CONTAINERS_STORAGE_CONF", str(storage))
        patch.setenv("CELLBLOCK_CACHE", str(memory / "cache"))
        patch.setenv("DOCKER_HOST", address)
        patch.setenv("BUILDAH_ISOLATION", "chroot")
        yield patch


@pytest.fixture(scope="module")
def builds(memory: Path, environment: pytest.MonkeyPatch) -> Iterator[Builds]:
    definitions = memory / "images"
    definitions.mkdir()
    shutil.copy(paths.PROJECT / "images" / "variants.yaml", definitions)
    for name, text in DEFINITIONS.items():
        (definitions / name).mkdir()
        (definitions / name / "image.yaml").write_text(text.lstrip())
    lay_files(definitions / TOP / "files")
    archive = make_archive(
        memory / "archive",
        suite="trixie",
        components=("main",),
        packages=("apt", "passwd", "munge", "libcap2-bin"),
    )
    seen: list[Event] = []
    events = Events()
    events.subscribe(seen.append)
    asked = BuildRequest((), VARIANT, (archive,), engine="docker", definitions=definitions)
    by_docker = build_images(asked, events)
    by_buildah = build_images(
        BuildRequest((), VARIANT, (archive,), definitions=definitions, bring=True), Events()
    )
    client = docker.DockerClient(base_url=os.environ["DOCKER_HOST"])
    yield Builds(definitions, archive, memory, client, by_docker, by_buildah, seen)
    client.close()


def lay_files(files: Path) -> None:
    """What an overlay can hold: existing folders, a folder that is a link, links, templates, odd names."""
    for name, text in {
        "tmp-is-1777": "",
        "var/run/through-a-link": "x",  # /var/run is a link to /run
        "root/in-a-folder-of-mode-0700": "x",
        "etc/over-a-link": "a file now\n",
        "usr/local/bin/greet.j2": "#!/bin/sh\necho {{ variant.name }}\n",
        "srv/two words/file name": "x",
    }.items():
        (files / name).parent.mkdir(parents=True, exist_ok=True)
        (files / name).write_text(text)
    (files / "usr/local/bin/greet.j2").chmod(0o755)
    (files / "srv/empty").mkdir()
    (files / "srv/link").symlink_to("/etc/passwd")


@pytest.mark.parametrize("name", [ROOT, TOOL, TOP, CHILD])
def test_both_engines_make_the_same_tree(builds: Builds, name: str) -> None:
    ours = builds.docker_tree(builds.docker.images[name].reference)
    with trees.buildah_root(builds.buildah.images[name].reference) as root:
        theirs = comparable(trees.entries(root))
    assert trees.differences(ours, theirs) == []
    assert len(ours) > 3


def test_the_tree_is_what_the_definition_says(builds: Builds) -> None:
    tree = builds.docker_tree(builds.docker.images[TOP].reference)
    assert tree["var/run"].kind == "l"
    assert tree["run/through-a-link"].mode == "0o644"
    assert tree["root"].mode == "0o700"
    assert tree["etc/over-a-link"].kind == "-"
    assert tree["usr/local/bin/greet"].mode == "0o755"
    assert tree["srv/two words/file name"].kind == "-"
    assert (tree["srv/empty"].kind, tree["srv/link"].content) == ("d", "/etc/passwd")
    assert (tree["opt/quoted"].mode, tree["opt/quoted"].owner) == ("0o4750", (65520, 42))
    assert [name for name, _ in tree["opt/capable"].xattrs] == ["security.capability"]
    assert tree["opt/dir/fifo"].kind == "p"
    assert tree["opt/said"] == tree["opt/dir/hard"]
    assert "etc/munge/munge.key" not in tree


def configuration(image: dict[str, Any]) -> dict[str, Any]:
    keys = ("Entrypoint", "Cmd", "Labels", "StopSignal")
    chosen = {key: image.get(key) or None for key in keys}
    # The key of the default engine is over layers, and is no instruction for other builders.
    left_out = ("io.buildah.version", "org.cellblock.key")
    chosen["Labels"] = {name: text for name, text in image["Labels"].items() if name not in left_out}
    return {**chosen, "Env": sorted(image["Env"])}


@pytest.mark.parametrize("name", [ROOT, TOOL, TOP, CHILD])
def test_both_engines_configure_the_image_alike(builds: Builds, name: str) -> None:
    ours = builds.client.images.get(builds.docker.images[name].reference).attrs["Config"]
    inspect = ["buildah", "inspect", "--type", "image", builds.buildah.images[name].reference]
    done = subprocess.run(inspect, check=True, capture_output=True, text=True)
    assert configuration(ours) == configuration(json.loads(done.stdout)["OCIv1"]["config"])


def test_values_of_the_configuration_are_taken_as_they_are(builds: Builds) -> None:
    config = builds.client.images.get(builds.docker.images[TOP].reference).attrs["Config"]
    assert 'GREETING=two  words "or" \\ more' in config["Env"]
    assert config["Entrypoint"] == ["/bin/sh", "-c", 'echo "$0"']
    assert config["Cmd"] == ["one", "two words"]
    assert config["Labels"]["org.opencontainers.image.description"] == (
        'everything a step can do: $HOME, "quotes" and \\ included'
    )
    child = builds.client.images.get(builds.docker.images[CHILD].reference).attrs["Config"]
    assert not child["Entrypoint"]
    assert not child["Cmd"]


def test_no_layer_carries_what_only_the_build_needed_nor_a_key(builds: Builds) -> None:
    patterns = [*apt.LEFTOVERS, "etc/munge/munge.key"]
    found = []
    for layer in trees.overlay_layers(builds.client, builds.docker.images[CHILD].reference):
        for path, entry in trees.entries(Path(layer)).items():
            # A whiteout, which says that a file is gone, is a character device.
            if entry.kind != "c" and any(fnmatch.fnmatch(path, pattern) for pattern in patterns):
                found.append(path)
            if path in apt.IDENTITIES:
                assert Path(layer, path).read_bytes() == b""
    assert found == []


def test_steps_and_output_are_reported_while_building(builds: Builds) -> None:
    steps = {(event.subject, event.step) for event in builds.events if isinstance(event, StepStarted)}
    assert {(ROOT, "bootstrap"), (TOOL, "compile"), (TOP, "copy artifacts"), (TOP, "run")} <= steps
    assert any(step.startswith("install packages") for _, step in steps)
    lines = [event.line for event in builds.events if isinstance(event, Output) and event.subject == TOP]
    assert any("Setting up munge" in line for line in lines)
    assert not any(line.startswith((" ---> ", "Step ")) for line in lines)


def test_what_is_built_is_found_again_by_its_key(builds: Builds) -> None:
    again = build_images(builds.request(TOP), Events())
    assert again.built == ()
    assert again.images[TOP].id == builds.docker.images[TOP].id


def docker_build(builds: Builds, context: Path, *, buildkit: bool) -> dict[str, trees.Entry]:
    """The tree that `docker build` makes of the rendered context, with debs that are served here."""
    program = docker_commands().get("BuildKit" if buildkit else "classic")
    if program is None:
        pytest.skip("no docker command here has BuildKit (apt-get install docker-buildx)")
    with serve([builds.folder / "archive"], [builds.archive]) as sources:
        argv = [program, "build", "--network", "host", "--file", str(context / NAME), "--target", TOP]
        argv += ["--build-arg", f"{SOURCES_ARGUMENT}={sources[0]}", "--tag", f"by-hand:{buildkit:d}"]
        environment = {**os.environ, "DOCKER_BUILDKIT": f"{buildkit:d}"}
        done = subprocess.run(
            [*argv, str(context)], capture_output=True, text=True, env=environment, check=False
        )
    assert done.returncode == 0, done.stdout + done.stderr
    return builds.docker_tree(f"by-hand:{buildkit:d}")


def buildah_build(builds: Builds, context: Path) -> dict[str, trees.Entry]:
    """The tree that `buildah build` makes of the rendered context, with debs that are mounted."""
    archive = builds.folder / "archive"
    sources = builds.archive.replace(f"//{archive}", "/mnt")
    argv = ["buildah", "build", "--layers", "--volume", f"{archive}:/mnt:ro", "--target", TOP]
    argv += ["--build-arg", f"{SOURCES_ARGUMENT}={sources}", "--tag", "localhost/by-hand"]
    done = subprocess.run([*argv, str(context)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    with trees.buildah_root("localhost/by-hand") as root:
        return comparable(trees.entries(root))


@pytest.fixture(scope="module")
def context(builds: Builds) -> Path:
    folder = builds.folder / "context"
    asked = RenderRequest((TOP,), VARIANT, (builds.archive,), builds.definitions)
    with rendered(asked) as file:
        file.write(folder, Events())
    return folder


@pytest.mark.parametrize("builder", ["buildah", "docker", "docker with BuildKit"])
def test_any_builder_makes_the_same_tree_of_the_rendered_containerfile(
    builds: Builds, context: Path, builder: str
) -> None:
    if builder == "buildah":
        tree = buildah_build(builds, context)
    else:
        tree = docker_build(builds, context, buildkit=builder != "docker")
    engines = builds.docker_tree(builds.docker.images[TOP].reference)
    assert trees.differences(tree, engines) == []


def test_a_failed_step_says_image_step_last_lines_and_what_to_do(builds: Builds) -> None:
    name = builds.declare("dockertest-bad", f"summary: b\nfrom: {ROOT}\nrun: [echo about to fail, exit 9]\n")
    with pytest.raises(StepFailed) as raised:
        build_images(builds.request(name), Events())
    text = str(raised.value)
    assert f"image {name}: step 'run' failed with status 9" in text
    assert "| about to fail" in text
    assert f"python3 build.py build {name} --variant {VARIANT}" in text
    assert "--engine docker" in text
    assert not [reference for reference in DockerEngine().images() if name in reference]
    assert builds.client.containers.list(all=True) == []


def test_an_unknown_package_is_named_with_the_place_to_correct(builds: Builds) -> None:
    text = f"summary: b\nfrom: {ROOT}\npackages: [no-such-package-anywhere]\n"
    with pytest.raises(StepFailed, match="Unable to locate package no-such-package-anywhere") as raised:
        build_images(builds.request(builds.declare("dockertest-unknown", text)), Events())
    assert "correct `packages`" in raised.value.hint


def test_a_stopped_build_ends_at_once_and_leaves_nothing(builds: Builds) -> None:
    bad = builds.declare("dockertest-stops", f"summary: b\nfrom: {ROOT}\nrun: [sleep 5, exit 1]\n")
    slow = builds.declare("dockertest-slow", f"summary: b\nfrom: {ROOT}\nrun: [echo begun, sleep 987]\n")
    states: dict[str, str] = {}
    events = Events()

    def note(event: Event) -> None:
        if isinstance(event, SubjectState):
            states[event.subject] = event.state

    events.subscribe(note)
    with pytest.raises(StepFailed, match=bad):
        build_images(builds.request(bad, slow), events)
    assert states[slow] == "stopped"
    assert not [reference for reference in DockerEngine().images() if slow in reference]
    # dockerd notices that nobody listens any more.
    ended = threading.Event()
    for _ in range(100):
        if not builds.client.containers.list(all=True):
            ended.set()
            break
        ended.wait(0.1)
    assert ended.is_set()


def test_a_stopped_engine_builds_nothing_more(builds: Builds) -> None:
    engine = DockerEngine()
    engine.stop()
    asked = RenderRequest((CHILD,), VARIANT, (builds.archive,), builds.definitions)
    with rendered(asked) as file, pytest.raises(Interrupted, match=CHILD):
        engine.build(file.recipes[-1], _Silent())


class _Silent:
    """A report that nobody reads."""

    def step(self, title: str) -> Any:
        return nullcontext()

    def line(self, text: str) -> None:
        pass

    def downloaded(self, seconds: float) -> None:
        pass


def test_without_a_daemon_the_message_says_where_it_was_looked_for(
    builds: Builds, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    with pytest.raises(CellblockError, match=rf"no Docker daemon answers at unix://{tmp_path}") as raised:
        build_images(builds.request(ROOT), Events())
    assert "DOCKER_HOST" in raised.value.hint


def test_an_image_in_use_is_not_removed(builds: Builds) -> None:
    engine = DockerEngine()
    image = builds.docker.images[ROOT]
    tagged = engine.tag(image, "localhost/cellblock/dockertest-more:1")
    assert engine.images()[tagged.reference].id == image.id
    assert engine.remove(tagged.reference)
    assert tagged.reference not in engine.images()
    assert not engine.remove(tagged.reference)
