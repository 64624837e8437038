# SPDX-License-Identifier: Apache-2.0
"""Without spank_jail: the worker's own enroot, for root and for users."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.jobs import home
from tests.integration.plugstack import changed_plugstack
from tests.integration.pyxis.conftest import IMAGE, Containers

pytestmark = pytest.mark.integration

# Where the workers, whose own root has no users and cannot be written, see the jail's files.
OUTSIDE = "/mnt/jail/root"


@pytest.fixture(scope="module")
def alone(containers: Containers) -> Iterator[Containers]:
    """The cluster with pyxis.so alone in plugstack.conf."""

    def without_jail(text: str) -> str:
        lines = [line for line in text.splitlines() if "spank_jail.so" not in line]
        return "".join(f"{line.partition(' jail_enter=')[0]}\n" for line in lines)

    def set_tmp(mode: str) -> None:
        for worker in ("worker-1", "worker-2"):
            containers.cluster.on(worker, "chmod", mode, "/tmp").ok()

    # Of a worker whose users are in the jail /tmp is root's.
    set_tmp("1777")
    try:
        with changed_plugstack(containers.cluster, without_jail):
            yield containers
    finally:
        set_tmp("0711")


@pytest.mark.parametrize("who", ["root", "a user"])
def test_the_plugin_works_without_a_jail(alone: Containers, who: str) -> None:
    user = "root" if who == "root" else alone.user
    folder = f"{OUTSIDE}/root" if who == "root" else f"{OUTSIDE}/home/{user}"
    named = f"--container-name=alone_{user}"
    image = f"--container-image={OUTSIDE}{IMAGE}"
    script = f"""
        srun -N2 -D/tmp {image} sh -c 'echo "mounted $(id -u) $WHERE"'
        export HOME={folder}
        srun -N1 -n1 -wworker-1 -D/tmp {image} {named} --container-writable --container-remap-root \\
            sh -c 'echo "root $(id -u)"; echo kept > /kept'
        srun -N1 -n1 -wworker-1 -D/tmp {named} cat /kept
        srun -N1 -n1 -wworker-1 -D/tmp test -d {OUTSIDE} && echo outside"""
    done = alone.cluster.client("salloc", "--quiet", "-N2", "sh", "-euc", script, user=user)
    number = home(alone.cluster, alone.user).stat().st_uid if user != "root" else 0
    wanted = [f"mounted {number} image"] * 2 + ["root 0", "kept", "outside"]
    assert done.out.splitlines() == wanted, done.err
    alone.cluster.jail("enroot", "remove", "--force", f"pyxis_alone_{user}", user=user).ok()


def test_what_is_missing_on_the_node_is_named(alone: Containers) -> None:
    """no home for containers with names; nothing that imports, which is the jail's"""
    done = alone.image("-D/tmp", "--container-name=x", "true", PYXIS_CONTAINER_IMAGE=OUTSIDE + IMAGE)
    assert done.status == 1
    assert "set ENROOT_DATA_PATH" in done.err
    done = alone.run("-D/tmp", "--container-image=any", "true", HOME=f"{OUTSIDE}/home/{alone.user}")
    assert "cannot run /usr/lib/enroot/enroot-image" in done.err
