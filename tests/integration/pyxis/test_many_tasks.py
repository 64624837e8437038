# SPDX-License-Identifier: Apache-2.0
"""Many tasks of a step enter one container a node; steps of more than one program or job."""

from __future__ import annotations

import os
from collections import Counter

import pytest

from tests.enroot.registry.images import Pusher
from tests.integration.jobs import home, sbatch
from tests.integration.pyxis.conftest import IMAGE, Containers
from tests.integration.pyxis.registry_image import image
from tests.integration.registry import RunningRegistry

pytestmark = pytest.mark.integration

# The mount namespace says which container it is.
_WHERE = 'echo "$SLURM_PROCID $SLURM_LOCALID $(hostname) $(stat -L -c %i /proc/self/ns/mnt) $WHERE"'


def entered(text: str, n: int, nodes: int) -> None:
    """Each of `n` tasks once, spread over the nodes, those of a node in one container."""
    lines = [line.split() for line in text.splitlines() if line[:1].isdigit()]
    assert sorted(int(line[0]) for line in lines) == list(range(n))
    tasks = Counter(line[2] for line in lines)
    assert sorted(tasks.values()) == [n // nodes] * nodes
    assert len({(line[2], line[3]) for line in lines}) == nodes
    for node in tasks:
        assert sorted(int(line[1]) for line in lines if line[2] == node) == list(range(n // nodes))


@pytest.mark.every_slurm
def test_sixteen_tasks_on_each_of_two_nodes(containers: Containers, hub: RunningRegistry, tar: bytes) -> None:
    """of an image by path, of a registry, and in a container with a name that is made, found and joined"""
    Pusher(f"http://{hub.host}", "team/many").image(image(tar, docker=False), "1")
    named = "--container-name=many"
    images = (f"--container-image={IMAGE}", f"--container-image={hub.host}#team/many:1")
    kinds = (images[0], images[1], f"{images[0]} {named}", named)
    steps = "\n".join(
        f"echo --; srun -N2 -n32 --overcommit --overlap {kind} sh -c '{_WHERE}'" for kind in kinds
    )
    done = containers.script(f"{steps}\nenroot remove --force pyxis_many", "-N2")
    found = done.out.split("--\n")[1:]
    assert len(found) == len(kinds), done.err
    for text in found:
        entered(text, 32, 2)
    assert containers.leftovers() == []


def test_128_tasks_on_a_node_meet_at_one_futex(containers: Containers) -> None:
    done = containers.image("-N1", "-n128", "--overcommit", "sh", "-c", _WHERE)
    entered(done.ok(), 128, 1)


def test_each_program_of_a_step_enters(containers: Containers) -> None:
    """--multi-prog"""
    programs = home(containers.cluster, containers.user) / "programs.conf"
    programs.write_text("0 cat /etc/os-release\n1-3 cat /etc/environment\n")
    words = ("-N2", "-n4", "--overcommit", "--multi-prog", f"/home/{containers.user}/programs.conf")
    said = containers.image(*words).ok().splitlines()
    assert (said.count('NAME="a test image"'), said.count("WHERE=image")) == (1, 3)


@pytest.mark.skipif(
    not os.environ.get("CELLBLOCK_PYXIS_HETEROGENEOUS"),
    reason="Slurm looks for such jobs every 30 s; CELLBLOCK_PYXIS_HETEROGENEOUS=1 waits for it",
)
def test_components_of_a_heterogeneous_job_share_their_image(containers: Containers) -> None:
    """Slurm 24.11 keeps one set of a plugin's options for all components."""
    ask = ("-N1", "-n1", "sh", "-c", 'echo "$SLURM_PROCID ${WHERE:-outside}"')
    done = containers.image(*ask, ":", *ask)
    assert sorted(done.ok().splitlines()) == ["0 image", "1 image"]


def test_each_job_of_an_array_enters(containers: Containers) -> None:
    options = (f"--container-image={IMAGE}", "--array=0-3", "--output=many.%a")
    sbatch(containers.cluster, containers.user, "#!/bin/sh\necho $SLURM_ARRAY_TASK_ID $WHERE", *options)
    found = sorted(path.read_text() for path in home(containers.cluster, containers.user).glob("many.[0-3]"))
    assert found == ["0 image\n", "1 image\n", "2 image\n", "3 image\n"]
