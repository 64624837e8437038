# SPDX-License-Identifier: Apache-2.0
"""The options of a job, --jail-readonly, --jail-bind and --no-jail, in a real cluster."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.jobs import ended
from tests.integration.local_cluster import Done, LocalCluster
from tests.integration.plugstack import changed_plugstack

pytestmark = [pytest.mark.integration, pytest.mark.every_slurm]

ARGUMENTS = (
    "bind-allow=/run/b/data bind-allow=/run/b/golden:ro no-jail-uids=0,2600 no-jail-tickets=/mnt/jail/no-jail"
)
# In the worker: what may be bound, what a symlink points out of it, what only root reaches.
PREPARE = """
mkdir -p -m 755 /run/b/data/set /run/b/data/closed/open /run/b/golden /run/b/other
chmod 700 /run/b/data/closed; chmod 777 /run/b/data/set
echo set > /run/b/data/set/f; echo golden > /run/b/golden/f; echo closed > /run/b/data/closed/open/f
ln -sfn /run/b/other /run/b/data/out; ln -sfn ../other /run/b/data/climb; ln -sfn set /run/b/data/inside
"""
OUTSIDE = "ls -d /mnt/jail/root"
ADMIN = 2600


@pytest.fixture(scope="module")
def allowed(cluster: LocalCluster, user: str) -> Iterator[Path]:
    """The cluster with binds, and --no-jail for root and olga, allowed; the directory of tickets."""
    tickets = cluster.root.parent / "no-jail"
    for folder, owner in ((tickets, 0), (tickets / "0", 0), (tickets / str(ADMIN), ADMIN)):
        folder.mkdir(mode=0o755 if folder == tickets else 0o700)
        os.chown(folder, owner, owner)
    for worker in ("worker-1", "worker-2"):
        cluster.on(worker, "sh", "-c", PREPARE).ok()
    cluster.jail("mkdir", "-p", "/mnt/d").ok()
    cluster.add_user("olga", f"--uid={ADMIN}")
    jail = re.compile(r"^(required \S*/spank_jail\.so .*)$", re.MULTILINE)
    try:
        with changed_plugstack(cluster, lambda text: jail.sub(rf"\1 {ARGUMENTS}", text)):
            yield tickets
    finally:
        shutil.rmtree(tickets)


def srun(cluster: LocalCluster, user: str, *arguments: str) -> Done:
    return cluster.client("srun", *arguments, user=user)


def batch(cluster: LocalCluster, user: str, script: str, *options: str, setting: str = "A=b") -> str:
    """Run a batch script in the jail and return its output; `setting` is sbatch's environment."""
    command = ("env", setting, "sbatch", "--parsable", "--output=options.out", *options)
    ended(cluster, cluster.jail(*command, user=user, stdin=f"#!/bin/bash\n{script}\n").ok().strip())
    return (cluster.root / "home" / user / "options.out").read_text()


def outside(cluster: LocalCluster, uid: int, *command: str) -> Done:
    """Run a client command on the login node, outside the jail."""
    return cluster.on("login", "setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", *command)


def unusable(cluster: LocalCluster) -> set[str]:
    """States of nodes that take no jobs. "planned": backfill will need the node; "*": it is asked."""
    states = cluster.on("controller", "sinfo", "-h", "-o", "%T").ok().split()
    return {state.rstrip("*") for state in states} - {"idle", "mixed", "allocated", "completing", "planned"}


# What the commands say of them.


@pytest.mark.parametrize("command", ["srun", "sbatch", "salloc"])
def test_help_lists_the_options(cluster: LocalCluster, command: str) -> None:
    shown = cluster.jail(command, "--help").ok()
    for option in ("--jail-readonly=[yes|no]", "--jail-bind=SRC:DST[:ro],...", "--no-jail=[yes|no]"):
        assert option in shown


def test_nothing_is_allowed_unless_the_administrator_says_so(cluster: LocalCluster, user: str) -> None:
    bind = srun(cluster, user, "--jail-bind=/srv:/mnt", "true")
    assert "there is no bind-allow= in plugstack.conf" in bind.err
    refused = cluster.on("login", "srun", "--no-jail", "true")
    assert "--no-jail: it is not for uid 0; the administrator allows it with no-jail-uids=0" in refused.err
    assert bind.status != 0
    assert refused.status != 0


# --jail-readonly


def test_readonly_keeps_the_volume_and_leaves_tmp(cluster: LocalCluster, user: str) -> None:
    done = srun(cluster, user, "--jail-readonly", "sh", "-c", "touch /tmp/x /dev/shm/x && echo tmp; touch y")
    assert done.out == "tmp\n"
    assert "Read-only file system" in done.err
    assert "Read-only file system" not in srun(cluster, user, "touch", "y").ok()


def test_readonly_of_a_batch_job_lets_its_output_be_written_and_holds_for_its_steps(
    cluster: LocalCluster, user: str
) -> None:
    script = (
        "touch x || echo batch; srun touch x || echo step; srun --jail-readonly=no touch x && echo written"
    )
    out = batch(cluster, user, script, "--jail-readonly")
    assert [line for line in out.splitlines() if " " not in line] == ["batch", "step", "written"]


def test_an_sbatch_line_and_a_variable_do_the_same(cluster: LocalCluster, user: str) -> None:
    assert batch(cluster, user, "#SBATCH --jail-readonly\ntouch x || echo no").endswith("no\n")
    assert batch(cluster, user, "touch x || echo no", setting="SBATCH_JAIL_READONLY=1").endswith("no\n")
    step = (
        "SRUN_JAIL_READONLY=yes srun touch x || echo no; SRUN_JAIL_READONLY=yes srun --jail-readonly=no true"
    )
    assert batch(cluster, user, step).splitlines()[-1] == "no"
    done = cluster.jail("env", "SALLOC_JAIL_READONLY=yes", "salloc", "srun", "touch", "x", user=user)
    assert "Read-only file system" in done.err
    wrong = cluster.jail("env", "SRUN_JAIL_READONLY=perhaps", "srun", "true", user=user)
    assert '--jail-readonly: it is "yes" or "no", not "perhaps"' in wrong.err
    assert wrong.status != 0


# --jail-bind


def test_an_allowed_directory_is_bound(cluster: LocalCluster, user: str, allowed: Path) -> None:
    look = "cat /mnt/d/f; touch /mnt/d/new && echo wrote; grep ' /mnt/d ' /proc/self/mounts"
    out = srun(cluster, user, "--jail-bind=/run/b/data/set:/mnt/d", "sh", "-c", look).ok().splitlines()
    assert out[:2] == ["set", "wrote"]
    assert {"nosuid", "nodev", "rw"} <= set(out[2].split()[3].split(","))
    assert srun(cluster, user, "--jail-bind=/run/b/data/inside:/mnt/d", "cat", "/mnt/d/f").ok() == "set\n"


def test_several_binds_and_single_files(cluster: LocalCluster, user: str, allowed: Path) -> None:
    script = (
        "touch ~/own; srun --jail-bind=/run/b/data/set:/mnt/d,/run/b/golden/f:$HOME/own:ro cat /mnt/d/f ~/own"
    )
    assert batch(cluster, user, script).splitlines() == ["set", "golden"]


def test_ro_is_read_only_and_demanded_where_only_that_is_allowed(
    cluster: LocalCluster, user: str, allowed: Path
) -> None:
    done = srun(
        cluster, user, "--jail-bind=/run/b/golden:/mnt/d:ro", "sh", "-c", "cat /mnt/d/f; touch /mnt/d/x"
    )
    assert done.out == "golden\n"
    assert "Read-only file system" in done.err
    refused = srun(cluster, user, "--jail-bind=/run/b/golden:/mnt/d", "true")
    assert refused.status != 0
    assert 'allows "/run/b/golden" for reading only; add :ro' in refused.err


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("/run/b/other:/mnt/d", "not in what the administrator allows: /run/b/data, /run/b/golden"),
        ("/run/b/data/../other:/mnt/d", 'without ".", ".."'),
        ("/run/b/data:/etc", 'would hide or change "/etc/slurm"'),
        ("/run/b/data:/run/munge", 'would hide or change "/run/munge"'),
        ("/run/b/data", "expected SRC:DST"),
    ],
)
def test_a_wrong_bind_is_refused_where_it_is_typed(
    cluster: LocalCluster, user: str, allowed: Path, value: str, why: str
) -> None:
    for command in (("srun", "true"), ("sbatch", "--wrap", "true"), ("salloc", "true")):
        done = cluster.jail(command[0], f"--jail-bind={value}", *command[1:], user=user)
        assert done.status != 0
        assert f"spank_jail: --jail-bind={value}: " in done.err
        assert why in done.err


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("/run/b/data/missing:/mnt/d", 'the source "/run/b/data/missing" is missing on this node'),
        ("/run/b/data/out:/mnt/d", "leads out of what bind-allow= allows, by a symlink"),
        ("/run/b/data/climb:/mnt/d", "leads out of what bind-allow= allows, by a symlink"),
        ("/run/b/data/closed/open:/mnt/d", 'you may not reach the source "/run/b/data/closed/open"'),
        ("/run/b/data/set:/tmp", 'would hide "/tmp", which /etc/cellblock/jail.fstab:'),
        ("/run/b/data/set:/var", 'would hide or change "/var/spool/slurmd"'),
        ("/run/b/data/set:/mnt/missing", "the target does not exist in the jail; make it there first"),
        ("/run/b/data/set:/opt", "the target belongs to uid 0"),
        ("/run/b/data/set/f:/mnt/d", "must both be directories or both be files"),
    ],
)
def test_what_only_the_node_can_tell_fails_the_job_and_not_the_node(
    cluster: LocalCluster, user: str, allowed: Path, value: str, why: str
) -> None:
    done = srun(cluster, user, f"--jail-bind={value}", "echo", "it ran")
    assert done.status != 0
    assert f"spank_jail: --jail-bind={value}: " in done.err
    assert why in done.err
    assert "it ran" not in done.out
    assert not unusable(cluster)


def test_so_it_is_for_a_batch_job(cluster: LocalCluster, user: str, allowed: Path) -> None:
    out = batch(cluster, user, "echo it ran", "--jail-bind=/run/b/data/missing:/mnt/d")
    assert 'the source "/run/b/data/missing" is missing on this node' in out
    assert "it ran" not in out
    assert not unusable(cluster)


def test_a_symlink_of_the_user_is_no_way_to_another_target(
    cluster: LocalCluster, user: str, allowed: Path
) -> None:
    link = cluster.root / "home" / user / "link"
    link.symlink_to("/etc/slurm")
    done = srun(cluster, user, f"--jail-bind=/run/b/data/set:/home/{user}/link", "true")
    link.unlink()
    assert done.status != 0
    assert "symlink; write the real path" in done.err


def test_steps_inherit_the_jobs_binds_and_may_have_others(
    cluster: LocalCluster, user: str, allowed: Path
) -> None:
    # -Q: where a step waits for the one before it to be cleared away, srun says so.
    script = """
        srun -Q cat /mnt/d/f
        srun -Q --jail-bind=/run/b/golden:/mnt/d:ro cat /mnt/d/f
        srun -Q --jail-bind=none ls /mnt/d
        SRUN_JAIL_BIND=/run/b/golden:/mnt/d:ro srun -Q cat /mnt/d/f
    """
    options = "--jail-bind=/run/b/data/set:/mnt/d"
    assert batch(cluster, user, script, options).split() == ["set", "golden", "golden"]
    done = cluster.jail("salloc", options, "srun", "cat", "/mnt/d/f", user=user)
    assert done.out == "set\n"


# --no-jail


def test_a_listed_user_gets_out_from_outside(cluster: LocalCluster, allowed: Path) -> None:
    for uid in (0, ADMIN):
        out = outside(
            cluster, uid, "srun", "--chdir=/", "-N2", "--no-jail", "sh", "-c", f"id -u; {OUTSIDE}"
        ).ok()
        assert sorted(out.split()) == sorted([str(uid), "/mnt/jail/root"] * 2)
        assert list((allowed / str(uid)).iterdir()) == []


def test_a_batch_job_and_its_steps_run_outside(cluster: LocalCluster, allowed: Path) -> None:
    script = f"{OUTSIDE}; env | grep -c SLURM_JAIL_TICKET; srun {OUTSIDE}; srun --no-jail=no {OUTSIDE}"
    options = ("--parsable", "--chdir=/", "-w", "worker-1", "--array=1-2", "--output=/tmp/options.%a")
    ended(cluster, cluster.on("login", "sbatch", *options, "--no-jail", "--wrap", script).ok().strip())
    for task in (1, 2):
        lines = cluster.on("worker-1", "cat", f"/tmp/options.{task}").ok().splitlines()
        assert [line for line in lines if " " not in line] == ["/mnt/jail/root", "0", "/mnt/jail/root"]
        assert any("No such file or directory" in line for line in lines)


@pytest.mark.parametrize("login", ["root", "ada"])
def test_nobody_gets_out_from_inside(cluster: LocalCluster, user: str, allowed: Path, login: str) -> None:
    done = cluster.jail("srun", "--no-jail", "echo", "it ran", user=login)
    assert done.status != 0
    assert "it ran" not in done.out
    assert "--no-jail" in done.err


def test_a_user_who_is_not_listed_stays_in(cluster: LocalCluster, allowed: Path) -> None:
    done = outside(cluster, 65534, "srun", "--chdir=/", "--no-jail", "true")
    assert done.status != 0
    assert "--no-jail: it is not for uid 65534" in done.err


# Slurm hands an option to the node by this variable, which anybody inside can set, past the plugin there.
BY_HAND = "_SLURM_SPANK_OPTION_jail_no_jail=yes"


def test_the_node_believes_no_option_without_a_ticket(
    cluster: LocalCluster, user: str, allowed: Path
) -> None:
    done = cluster.jail("env", BY_HAND, "srun", "echo", "it ran", user="olga")
    assert done.status != 0
    assert "it ran" not in done.out
    assert "--no-jail: the job brings no ticket" in done.err
    ticket = f"SLURM_JAIL_TICKET={'a' * 32}"
    made_up = cluster.jail("env", BY_HAND, ticket, "srun", "echo", "it ran", user="olga")
    assert made_up.status != 0
    assert "it ran" not in made_up.out
    assert "the job's ticket is not known" in made_up.err


def test_a_ticket_serves_once(cluster: LocalCluster, allowed: Path) -> None:
    command = ("sbatch", "--parsable", "--chdir=/", "-o", "/dev/null", "--no-jail", "--wrap", "true")
    ended(cluster, outside(cluster, ADMIN, *command).ok().strip())
    used = max(
        (path for path in (allowed / str(ADMIN)).iterdir() if path.suffix == ".used"),
        key=lambda path: path.lstat().st_mtime,
    )
    ticket = f"SLURM_JAIL_TICKET={used.stem}"
    done = cluster.jail("env", BY_HAND, ticket, "srun", "echo", "it ran", user="olga")
    assert done.status != 0
    assert "it ran" not in done.out
    assert f"the job's ticket was used by {used.readlink()} already" in done.err


def test_a_refused_batch_job_fails_and_does_not_drain(cluster: LocalCluster, allowed: Path) -> None:
    command = ("sbatch", "--parsable", "--output=/home/olga/refused", "--wrap", "echo it ran")
    job = ended(cluster, cluster.jail("env", BY_HAND, *command, user="olga").ok().strip())
    text = (cluster.root / "home/olga/refused").read_text()
    assert "--no-jail: the job brings no ticket" in text
    assert "it ran" not in text
    assert cluster.job(job)["JobState"] == "FAILED"
    assert not unusable(cluster)


def test_no_jail_goes_with_no_other_option(cluster: LocalCluster, allowed: Path) -> None:
    done = cluster.on("login", "srun", "--no-jail", "--jail-readonly", "true")
    assert done.status != 0
    assert "--no-jail: it makes no sense together with --jail-readonly" in done.err
