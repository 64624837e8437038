# SPDX-License-Identifier: Apache-2.0
"""Makes definitions of few packages, and builds them with each engine of this machine to compare."""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

import docker
import pytest

from cellblock.build import BuildRequest, BuildResult
from cellblock.events import Event
from tests.integration import trees
from tests.integration.archive import HAS_A_MIRROR

NEEDS = [
    pytest.mark.integration,
    pytest.mark.skipif(os.geteuid() != 0, reason="building images needs root"),
    pytest.mark.skipif(
        shutil.which("dockerd") is None, reason="dockerd is not installed (apt-get install docker.io)"
    ),
    HAS_A_MIRROR,
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
    """Without what says nothing of an image; engines mount a /dev of their own over an image's."""
    return {
        path: entry
        for path, entry in tree.items()
        if path not in NOT_COMPARED and not path.startswith("dev/")
    }


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
