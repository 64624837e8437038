# SPDX-License-Identifier: Apache-2.0
"""Fixtures for tests of containers in steps: an image of the jail's own programs, and a way to run it."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.integration.local_cluster import Done, LocalCluster
from tests.integration.registry import RunningRegistry, running_registry

IMAGE = "/opt/pyxis-test.sqsh"
LAYER = "/opt/pyxis-test.tar"
"""The same without what an import adds to it."""
# /etc/rc as an import writes it; the working directory is in the image.
_RC = """#!/bin/sh
# enroot-provenance: docker://test
mkdir -p "/work dir" 2> /dev/null
cd "/work dir" && unset OLDPWD || exit 1
if [ -s /etc/rc.local ]; then . /etc/rc.local; fi
export FROM_RC=entered
echo "the entrypoint speaks"
exec "$@"
"""
_MAKE = """set -eu
top=$(mktemp -d); cd "$top"
for folder in bin lib lib64 sbin; do mkdir -p usr/$folder; ln -s usr/$folder $folder; done
mkdir -p etc tmp proc sys dev "work dir"
for name in sh cat cp env id ls mkdir pwd rm sleep stat tr true wc hostname; do
    cp -L "/usr/bin/$name" usr/bin/
    ldd "/usr/bin/$name" | grep -o '/lib[^ ]*' | while read -r library; do
        mkdir -p "usr$(dirname "$library")"; cp -Ln "$library" "usr$library" || true; done
done
echo 'NAME="a test image"' > etc/os-release
tar --owner=0 --group=0 -cf "$2" .
printf 'WHERE=image\\nLC_ALL=C.UTF-8\\n' > etc/environment
cat > etc/rc
mksquashfs . "$1" -all-root -noappend -quiet -no-progress -comp zstd -Xcompression-level 1
chmod 0644 "$1"
rm -rf "$top"
"""


@dataclass(frozen=True)
class Containers:
    """srun with --container-image, as a user of the jail."""

    cluster: LocalCluster
    user: str

    def run(self, *words: str, user: str | None = None, **variables: str) -> Done:
        """`srun WORDS`; the words say all, the image as well."""
        environment = [f"{name}={value}" for name, value in variables.items()]
        return self.cluster.client("env", *environment, "srun", *words, user=user or self.user)

    def image(self, *words: str, **variables: str) -> Done:
        """The same, from the image, on one node."""
        return self.run(f"--container-image={IMAGE}", *words, **variables)

    def script(self, text: str, *options: str) -> Done:
        """A shell script in an allocation."""
        return self.cluster.jail("salloc", "--quiet", *options, "sh", "-euc", text, user=self.user)

    def leftovers(self) -> list[str]:
        """Processes of containers on all workers, and what lies beside the named ones."""
        names = ("enroot-hold", "squashfuse", "pyxis-keeper", "enroot start", "/proc/self/fd/")
        running = [
            command
            for worker in ("worker-1", "worker-2")
            for _, command in self.cluster.processes(worker)
            if any(name in command for name in names)
        ]
        folder = self.cluster.root / "home" / self.user / ".local/share/enroot"
        return running + [path.name for path in folder.glob("*") if path.name[:1] == "." or "." in path.name]


@pytest.fixture(scope="session")
def containers(cluster: LocalCluster, user: str) -> Containers:
    cluster.jail("sh", "-c", _MAKE, "make", IMAGE, LAYER, stdin=_RC).ok()
    return Containers(cluster, user)


@pytest.fixture(scope="session")
def tar(containers: Containers) -> bytes:
    """The image's one layer."""
    return (containers.cluster.root / LAYER.lstrip("/")).read_bytes()


@pytest.fixture(scope="session")
def gateway(cluster: LocalCluster) -> str:
    """This machine, as the cluster reaches it: its containers' way out (proc(5), /proc/net/route)."""
    routes = [line.split() for line in cluster.on("worker-1", "cat", "/proc/net/route").ok().splitlines()[1:]]
    address = next(route[2] for route in routes if route[1] == "00000000")
    return socket.inet_ntoa(struct.pack("=I", int(address, 16)))


@pytest.fixture(scope="session")
def hub(
    containers: Containers, gateway: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningRegistry]:
    """A registry on the cluster's network that the jail's users may ask in plain http."""
    with running_registry(tmp_path_factory.mktemp("hub"), address=gateway) as running:
        allow = f'[[registry]]\nlocation = "{running.host}"\ninsecure = true\n'
        write = "mkdir -p ~/.config/containers && cat > ~/.config/containers/registries.conf"
        for user in (containers.user, "root"):
            containers.cluster.jail("bash", "-lc", write, user=user, stdin=allow).ok()
        yield running
