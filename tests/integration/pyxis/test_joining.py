# SPDX-License-Identifier: Apache-2.0
"""Joining a container that runs: a step gets what it asks for, or is refused with what is missing."""

from __future__ import annotations

import pytest

from tests.integration.jobs import home
from tests.integration.pyxis.conftest import IMAGE, Containers

pytestmark = pytest.mark.integration
NAMED = "--container-name=joined"
SEES = 'own=$(stat -Lc %i /proc/self/ns/net) && [ "$own" -gt 0 ] && [ "$own" != "$NODE" ] && echo apart'


def joined(
    containers: Containers, first: str, *then: str, name: str = "joined"
) -> list[tuple[int, str, str]]:
    """A step with options `first` runs; the status, output and errors of each of `then`, which join it."""
    folder = home(containers.cluster, containers.user)
    lines = "\n".join(
        f"s=0; srun --overlap {words} > joined.out 2> joined.err || s=$?; "
        f'echo "@@$s"; cat joined.out; echo "@@"; cat joined.err'
        for words in then
    )
    script = f"""
        rm -f up go; export NODE=$(srun --overlap stat -Lc %i /proc/self/ns/net)
        srun --overlap --container-image={IMAGE} --container-name={name} {first} \
            --container-mounts=$HOME:/up sh -c 'echo > /up/up; while [ ! -e /up/go ]; do sleep 0.1; done' &
        n=0; while [ ! -e up ] && [ $n -lt 300 ]; do sleep 0.1; n=$((n + 1)); done
        {lines}
        touch go; wait; rm -f up go joined.out joined.err
        enroot remove -f pyxis_{name} pyxis_other 2> /dev/null || true"""
    done = containers.script(script, "-n1", "--overcommit", "-wworker-1", f"-D/home/{containers.user}")
    assert not (folder / "up").exists(), done
    parts = done.out.split("@@")[1:]
    assert len(parts) == 2 * len(then), done
    pairs = zip(parts[::2], parts[1::2], strict=True)
    found = [(head.partition("\n"), err) for head, err in pairs]
    return [(int(status), out.strip(), err) for (status, _, out), err in found]


def refused(result: tuple[int, str, str], option: str) -> bool:
    """With a reason, and nothing was run."""
    status, out, err = result
    return (
        status != 0
        and out == ""
        and f'pyxis: {option}: the container "joined" runs already, and ' in err
        and "pyxis:   next: leave the option out, or give joined another name; :no_exec " in err
    )


@pytest.mark.every_slurm
def test_namespaces_that_the_container_lacks(containers: Containers) -> None:
    results = joined(
        containers,
        "",
        *(
            f"{NAMED} --container-unshare={kind} sh -c '{SEES}'"
            for kind in ("net", "ipc", "uts", "net,ipc,uts")
        ),
        f"{NAMED} sh -c '{SEES}'",
        f"{NAMED}:no_exec --container-unshare=net sh -c '{SEES}'",
        f"--container-name=other --container-image={IMAGE} --container-unshare=net sh -c '{SEES}'",
    )
    for result, kind in zip(results, ("net", "ipc", "uts", "net"), strict=False):
        assert refused(result, f"--container-unshare={kind}"), result
    assert results[4][0] != 0, "the node's network"
    # What the message says to do.
    assert [result[1].split()[-1] for result in results[5:]] == ["apart", "apart"], results


def test_namespaces_that_it_has(containers: Containers) -> None:
    results = joined(
        containers,
        "--container-unshare=net,uts",
        f"{NAMED} --container-unshare=net sh -c '{SEES}'",
        f"{NAMED} --container-unshare=uts,net -n4 --overcommit sh -c 'echo x'",
        f"{NAMED} --container-unshare=net,ipc true",
        f"{NAMED} sh -c '{SEES}'",
    )
    assert results[0][1].endswith("apart"), results
    assert results[1][:2] == (0, "x\nx\nx\nx")
    assert refused(results[2], "--container-unshare=ipc")
    assert results[3][1].endswith("apart"), results


def test_what_the_jobs_environment_asks_for_is_asked_for(containers: Containers) -> None:
    results = joined(containers, "", f"{NAMED} true", f"--export=ALL,ENROOT_UNSHARE_NET=y {NAMED} true")
    assert results[0][0] == 0, results
    assert refused(results[1], "--container-unshare=net"), results


def test_other_settings(containers: Containers) -> None:
    results = joined(
        containers,
        "--container-writable --no-container-mount-home",
        f"{NAMED} --container-readonly true",
        f"{NAMED} --container-writable true",
        f"{NAMED} --container-remap-root true",
        f"{NAMED} --no-container-remap-root true",
        f"{NAMED} --container-mount-home true",
        f"{NAMED} --no-container-mount-home true",
        f"{NAMED} --container-mounts=$HOME:/up true",
        f"{NAMED} --container-mounts=$HOME:/up:ro true",
        f"{NAMED} --container-mounts=/tmp:/elsewhere true",
        f"{NAMED} --container-mounts=tmpfs:/scratch true",
    )
    wanted = [
        "--container-readonly", "", "--container-remap-root", "", "--container-mount-home", "", "",
        "--container-mounts", "--container-mounts", "--container-mounts",
    ]  # fmt: skip
    for result, option in zip(results, wanted, strict=True):
        assert refused(result, option) if option else result[0] == 0, (option, result)


def test_settings_of_a_container_that_has_them(containers: Containers) -> None:
    results = joined(
        containers,
        "--container-readonly --container-remap-root --container-mount-home",
        f"{NAMED} --container-readonly --container-remap-root id -u",
        f"{NAMED} --container-mount-home true",
        f"{NAMED} --container-writable true",
        f"{NAMED} --no-container-remap-root true",
        f"{NAMED} --no-container-mount-home true",
    )
    assert results[0][:2] == (0, "0"), results
    assert results[1][0] == 0, results
    options = ("--container-writable", "--no-container-remap-root", "--no-container-mount-home")
    for result, option in zip(results[2:], options, strict=True):
        assert refused(result, option), result


def test_a_container_of_another_job_that_has_no_name(containers: Containers) -> None:
    """As JOB.STEP; there is no root of it to begin a second one with."""
    hold = "echo > /up/up; while [ ! -e /up/go ]; do sleep 0.1; done"
    join = "srun --overlap --container-name=$SLURM_JOB_ID.0:exec"
    script = f"""
        rm -f up go
        srun --overlap --container-image={IMAGE} --container-mounts=$HOME:/up sh -c '{hold}' &
        n=0; while [ ! -e up ] && [ $n -lt 300 ]; do sleep 0.1; n=$((n + 1)); done
        {join} --container-unshare=net true || echo refused
        {join} sh -c 'echo joined'; touch go; wait; rm -f up go"""
    done = containers.script(script, "-n1", "--overcommit", "-wworker-1", f"-D/home/{containers.user}")
    assert done.out.split() == ["refused", "joined"], done
    assert "has no net namespace of its own: it shares the node's" in done.err
    assert ":no_exec" not in done.err


def test_a_name_whose_container_was_removed_while_it_runs(containers: Containers) -> None:
    """The name is free: a step makes a new container, and those after it find that one."""
    gone = "srun --overlap --container-name=gone"
    script = f"""
        rm -f up go; mkfifo go; enroot remove -f pyxis_gone 2> /dev/null || true
        {gone} --container-image={IMAGE} --container-mounts=$HOME:/up \
            sh -c 'echo > /up/up; read x < /up/go' &
        n=0; while [ ! -e up ] && [ $n -lt 300 ]; do sleep 0.1; n=$((n + 1)); done
        {gone} true && echo joined
        enroot remove -f pyxis_gone
        {gone} true || echo refused
        {gone}:exec true || echo "not running"
        {gone} --container-image={IMAGE} --container-writable sh -c 'cat /etc/os-release; echo new > /new'
        {gone} cat /new
        enroot create -f -n pyxis_gone {IMAGE} 2> /dev/null
        {gone} sh -c 'cat /new 2> /dev/null || echo replaced'
        echo > go; wait; rm -f up go; enroot remove -f pyxis_gone"""
    done = containers.script(script, "-n1", "--overcommit", "-wworker-1", f"-D/home/{containers.user}")
    wanted = ["joined", "refused", "not running", 'NAME="a test image"', "new", "replaced"]
    assert done.out.splitlines() == wanted, done.err
    assert 'there is no container "gone" on this node yet: give --container-image, too' in done.err


def test_a_step_saves_no_other_container_than_its_own(containers: Containers) -> None:
    """Removed, or removed and made anew, while the step runs: what has the name now is not what it ran in."""
    named = "srun --overlap --container-name=unsaved"
    script = f"""
        begin() {{
            rm -f up
            "$@" sh -c 'echo > /up/up; read x < /up/go' &
            n=0; while [ ! -e up ] && [ $n -lt 300 ]; do sleep 0.1; n=$((n + 1)); done
        }}
        finish() {{ echo > go; wait; }}
        tell() {{ if [ -e $1.sqsh ]; then echo "$1: saved"; else echo "$1: not saved"; fi; }}
        rm -f go *.sqsh; mkfifo go; enroot remove -f pyxis_unsaved 2> /dev/null || true
        up="--container-mounts=$HOME:/up"

        begin {named} --container-image={IMAGE} $up --container-save=$HOME/remade.sqsh
        enroot remove -f pyxis_unsaved
        {named} --container-image={IMAGE} --container-writable sh -c 'echo new > /new'
        finish; tell remade

        begin {named} $up --container-save=$HOME/existing.sqsh
        finish; tell existing

        begin {named} $up
        {named} --container-save=$HOME/joined.sqsh true
        {named} --container-save=$HOME/late.sqsh sleep 3 & late=$!; sleep 1.5
        enroot create -f -n pyxis_unsaved {IMAGE} 2> /dev/null
        wait $late; finish; tell joined; tell late

        begin {named} $up --container-save=$HOME/gone.sqsh
        enroot remove -f pyxis_unsaved
        finish; tell gone

        begin srun --overlap --container-image={IMAGE} $up --container-save=$HOME/nameless.sqsh
        finish; tell nameless
        rm -f up go *.sqsh"""
    done = containers.script(script, "-n1", "--overcommit", "-wworker-1", f"-D/home/{containers.user}")
    wanted = ["remade: not saved", "existing: saved", "joined: saved", "late: not saved", "gone: not saved"]
    assert done.out.splitlines() == [*wanted, "nameless: saved"], done.err
    assert done.err.count("it was removed while the step ran\n") == 3, done.err
