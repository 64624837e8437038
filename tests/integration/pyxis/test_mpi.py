# SPDX-License-Identifier: Apache-2.0
"""Tasks of two nodes that find each other in containers: Open MPI by PMIx, PMI-2, PyTorch's way."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from cellblock.paths import PROJECT
from tests.integration.jobs import home
from tests.integration.pyxis.conftest import Containers

pytestmark = pytest.mark.integration

_IMAGE = "/opt/pyxis-mpi.sqsh"
_HERE = Path(__file__).parent
# How Slurm places 2 x 2 tasks on nodes of two cores each, which other tests may use.
_TASKS = "-N2 -n4 --overcommit --overlap"


def _make(containers: Containers, *program: str) -> None:
    folder = containers.cluster.root / "opt/pyxis-mpi"
    shutil.copytree(_HERE / "programs", folder, dirs_exist_ok=True)
    script = (_HERE / "mpi_image.sh").read_text()
    containers.cluster.jail("sh", "-s", _IMAGE, "/opt/pyxis-mpi", *program, stdin=script).ok()


@pytest.fixture(scope="session")
def plain_image(containers: Containers) -> str:
    """With python and the small programs."""
    _make(containers)
    return f"--container-image={_IMAGE}"


@pytest.fixture(scope="session")
def mpi_image(plain_image: str, containers: Containers, mpi_program: str) -> str:
    """With the Open MPI program, too."""
    _make(containers, f"/home/{containers.user}/{mpi_program}")
    return plain_image


def ranks(text: str, total: int) -> list[str]:
    """The nodes of ranks 0, 1, ... of 4, each of which knows the `total`."""
    lines = sorted(line.partition(" local ")[0] for line in text.splitlines() if line.startswith("rank "))
    assert [line.split(" on ")[0] for line in lines] == [f"rank {rank} of 4" for rank in range(4)], text
    assert all(line.endswith(f" sum {total}") for line in lines), text
    return [line.split()[5] for line in lines]


def parts(text: str) -> list[str]:
    return text.split("--\n")[1:]


@pytest.mark.needs_munge
@pytest.mark.every_slurm
def test_open_mpi_over_two_nodes(containers: Containers, mpi_image: str) -> None:
    """as a user, and as one who is root in the container: PMIx then knows him by munge"""
    script = f"""
        echo --; srun --mpi=pmix {_TASKS} {mpi_image} /opt/sum
        echo --; srun --mpi=pmix {_TASKS} {mpi_image} --container-remap-root /opt/sum
        echo --; OMPI_MCA_pml=ob1 OMPI_MCA_btl=^tcp \\
            srun --mpi=pmix -wworker-1 -N1 -n4 --overcommit --overlap {mpi_image} /opt/sum"""
    done = containers.script(script, "-N2")
    user, root, memory = parts(done.out)
    for text in (user, root):
        assert set(ranks(text, 6)) == {"worker-1", "worker-2"}, done.err
    assert set(ranks(memory, 6)) == {"worker-1"}, done.err
    assert containers.leftovers() == []


@pytest.fixture
def pmi_hook(containers: Containers) -> Iterator[None]:
    """The hook for PMI, enabled as docs/enroot.md says."""
    page = (PROJECT / "docs/enroot.md").read_text()
    (line,) = re.findall(r"`(mkdir -p /etc/enroot/hooks\.d; ln -s [^`]*50-slurm-pmi.sh [^`]*)`", page)
    containers.cluster.jail("sh", "-euc", line).ok()
    try:
        yield
    finally:
        containers.cluster.jail("rm", "-r", "/etc/enroot/hooks.d").ok()


@pytest.mark.needs_munge
@pytest.mark.usefixtures("pmi_hook")
def test_open_mpi_with_the_hook_for_pmi(containers: Containers, mpi_image: str) -> None:
    offered = "echo $PMIX_MCA_psec; [ $PMIX_MCA_gds = $PMIX_GDS_MODULE ] && echo same"
    script = f"""
        echo --; srun --mpi=pmix {_TASKS} {mpi_image} /opt/sum
        echo --; srun --mpi=pmix {_TASKS} {mpi_image} --container-remap-root /opt/sum
        echo --; srun --mpi=pmix -n1 {mpi_image} sh -c '{offered}'"""
    done = containers.script(script, "-N2")
    user, root, parameters = parts(done.out)
    for text in (user, root):
        assert set(ranks(text, 6)) == {"worker-1", "worker-2"}, done.err
    assert "munge" in parameters.split()[0], done
    assert parameters.split()[1] == "same", done


@pytest.mark.needs_munge
def test_open_mpi_in_containers_that_ran_before_the_step(containers: Containers, mpi_image: str) -> None:
    """They do not show where this step's server puts its shared memory."""
    go = home(containers.cluster, containers.user) / "mpi-go"
    seen = f"/home/{containers.user}/mpi"
    wait = f"touch {seen}-up.$SLURM_STEP_ID.$SLURM_PROCID; while [ ! -e {seen}-go ]; do sleep 0.2; done"
    hold = f"-N2 -n2 --overlap {mpi_image} --container-mounts=/home/{containers.user}"
    script = f"""
        rm -f {seen}-*
        srun {hold} --container-name=mpi_user sh -c '{wait}' & held=$!
        srun {hold} --container-name=mpi_root --container-remap-root sh -c '{wait}' & held="$held $!"
        while [ "$(ls {seen}-up.* 2>/dev/null | wc -l)" -lt 4 ]; do
            kill -0 $held || exit 3
            sleep 0.2
        done
        for name in user root; do
            echo --; srun --mpi=pmix {_TASKS} --container-name=mpi_$name:exec /opt/sum; done
        touch ~/mpi-go; wait; enroot remove --force pyxis_mpi_user pyxis_mpi_root"""
    try:
        done = containers.script(script, "-N2")
    finally:
        go.touch()
    assert len(parts(done.out)) == 2, done
    for text in parts(done.out):
        assert set(ranks(text, 6)) == {"worker-1", "worker-2"}, done.err


@pytest.mark.needs_munge
def test_open_mpi_that_cannot_prove_who_it_is_ends(containers: Containers, mpi_image: str) -> None:
    """root in the container, and no munge there: an error instead of waiting for ever"""
    hide = f"{mpi_image} --container-remap-root --container-mounts=tmpfs:/run/munge"
    done = containers.script(f"timeout 30 srun --mpi=pmix -n2 --overcommit {hide} /opt/sum", "-n1")
    assert done.status not in (0, 124), done
    assert "rank" not in done.out


@pytest.mark.every_slurm
def test_pmi2_over_two_nodes(containers: Containers, plain_image: str) -> None:
    done = containers.run(
        "--mpi=pmi2", *_TASKS.split(), plain_image, "python3", "/opt/pmi2_exchange.py", SLURM_DEBUG="0"
    )
    assert set(ranks(done.ok(), 14)) == {"worker-1", "worker-2"}


def test_a_rendezvous_like_that_of_pytorch(containers: Containers, plain_image: str) -> None:
    """RANK and LOCAL_RANK are Slurm's; MASTER_ADDR and the others stay the job's."""
    script = f"""
        export PYTORCH_VERSION=2 MASTER_PORT=$((20000 + SLURM_JOB_ID % 10000)) WORLD_SIZE=4
        export MASTER_ADDR=$(srun --relative=0 -N1 -n1 hostname)
        srun --distribution=block {_TASKS} {plain_image} python3 /opt/torch_rendezvous.py"""
    done = containers.script(script, "-N2")
    assert set(ranks(done.out, 6)) == {"worker-1", "worker-2"}, done.err
    local = [line.partition(" local ")[2] for line in sorted(done.out.splitlines())]
    assert local == ["0", "1", "0", "1"]
