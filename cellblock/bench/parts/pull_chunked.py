# SPDX-License-Identifier: Apache-2.0
"""Measures how many bytes podman pulls of an image compressed as zstd:chunked.

Of such an image podman reads only the parts that it lacks. podman and skopeo are those of Debian sid, in a
root filesystem of their own: older ones support it only in part. The time is that of the pull alone; no
container is started.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from cellblock.bench.harness.counting_proxy import CountingProxy
from cellblock.bench.harness.debian_root import debian_root, entered
from cellblock.bench.harness.scratch import scratch
from cellblock.errors import CellblockError
from cellblock.events import Events

_PACKAGES = ("podman", "skopeo", "runc")
_CHUNKED = ("--dest-compress-format=zstd:chunked", "--dest-force-compress-format")
_STORAGE = """\
[storage]
driver = "overlay"
graphroot = "{folder}/graph"
runroot = "{folder}/run"
[storage.options]
pull_options = {{enable_partial_images = "true", use_hard_links = "false", ostree_repos = ""}}
"""
_MACHINE = "/mnt"
"""Where this machine's files are in that root."""


def chunked_pulls(
    images: Sequence[str], folder: Path, host: str, proxy: CountingProxy, events: Events
) -> list[tuple[float, int]]:
    """Seconds and bytes of pulling each of `images` (oci:FOLDER:NAME), one after the other, to one node.

    They are pushed to the registry `host`, and pulled through `proxy`. Raises CellblockError.
    """
    root = debian_root("pull", "sid", _PACKAGES, [], events)
    found = []
    with entered(root) as enter, scratch(folder) as place:
        settings = place / "storage.conf"
        settings.write_text(_STORAGE.format(folder=f"{_MACHINE}{place}"))
        policy = place / "policy.json"
        policy.write_text('{"default": [{"type": "insecureAcceptAnything"}]}')
        variables = {"CONTAINERS_STORAGE_CONF": f"{_MACHINE}{settings}", "HOME": "/root"}
        for tag, image in enumerate(images):
            source = image.replace("oci:", f"oci:{_MACHINE}", 1)
            target = f"docker://{host}/bench/chunked:{tag}"
            copy = ["skopeo", "--insecure-policy", "copy", "--quiet", "--dest-tls-verify=false", *_CHUNKED]
            with events.step("chunked", f"push {tag + 1} of {len(images)}"):
                _run([*enter, *copy, source, target], variables)
        for tag in range(len(images)):
            pull = ["podman", "--cgroup-manager=cgroupfs", "pull", "--quiet", "--tls-verify=false"]
            options = [f"--signature-policy={_MACHINE}{policy}", f"{proxy.address}/bench/chunked:{tag}"]
            proxy.taken()
            os.sync()
            began = time.perf_counter()
            with events.step("chunked", f"pull {tag + 1} of {len(images)}"):
                _run([*enter, *pull, *options], variables)
            found.append((time.perf_counter() - began, proxy.taken()))
        _run([*enter, "podman", "--cgroup-manager=cgroupfs", "rmi", "--all", "--force"], variables)
    return found


def _run(command: Sequence[str], variables: dict[str, str]) -> None:
    done = subprocess.run(
        command, env={**os.environ, **variables}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise CellblockError(
            f"`{' '.join(command)}` ended with status {done.returncode}: {done.stderr.strip()[-1000:]}",
            hint="correct what it says, then run the benchmark again",
        )
