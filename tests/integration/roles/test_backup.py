# SPDX-License-Identifier: Apache-2.0
"""A backup of what Slurm remembers, and the way back, in a cluster that runs."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from cellblock.cluster.backup import back_up, restore
from cellblock.errors import CellblockError, UsageError
from cellblock.events import Events
from cellblock.paths import PROJECT
from tests import documented
from tests.integration.conftest import default_variant, other_variants, running_cluster
from tests.integration.local_cluster import LocalCluster

pytestmark = pytest.mark.integration

FILE = "accounting: {}\nnode_sets:\n  - {name: worker, count: 1}\n"
_FIELDS = "jobid,user,account,state,exitcode,start,end,alloctres"
# Seconds for a command of build.py.
_TIMEOUT_S = 300


@pytest.fixture(scope="module", params=[default_variant(), *other_variants()])
def kept(request: pytest.FixtureRequest) -> Iterator[LocalCluster]:
    """A cluster with accounting, a user, and a job of theirs that ended."""
    with running_cluster("kept", request.param, text=FILE) as running:
        running.add_user("ada")
        run(running)
        yield running


def used(cluster: LocalCluster) -> str:
    return cluster.on("controller", "sacct", "-nXP", "--allusers", f"--format={_FIELDS}").ok()


def run(cluster: LocalCluster) -> None:
    """A job of the user's, until the accounting knows its end."""
    number = cluster.jail("srun", "-D/", "sh", "-c", "echo $SLURM_JOB_ID", user="ada").ok().strip()
    cluster.wait_until(
        "it is over in the accounting", lambda: f"\n{number}|ada|users|COMPLETED" in used(cluster)
    )
    cluster.wait_until("its nodes know it, too", lambda: number not in queue(cluster))


def name_of(cluster: LocalCluster) -> str:
    return cluster.request.name or ""


def submit_held(cluster: LocalCluster) -> str:
    options = ("--hold", "-D/", "-o/dev/null", "--parsable", "--wrap", "true")
    return cluster.jail("sbatch", *options, user="ada").ok().strip()


def queue(cluster: LocalCluster) -> list[str]:
    return cluster.on("controller", "squeue", "--all", "--noheader", "--format=%A").ok().split()


def test_what_was_used_and_what_waits_is_as_it_was(kept: LocalCluster, tmp_path: Path) -> None:
    waits = submit_held(kept)
    before = used(kept)
    made = back_up(name_of(kept), tmp_path / "slurm.tar", Events())
    assert made.release == kept.status.release
    assert (tmp_path / "slurm.tar").stat().st_mode & 0o777 == 0o600
    kept.jail("scancel", waits, user="ada").ok()
    run(kept)
    meanwhile = used(kept)
    assert meanwhile != before

    undo = restore(name_of(kept), tmp_path / "slurm.tar", Events())
    assert used(kept) == before
    assert queue(kept) == [waits]
    run(kept)

    restore(name_of(kept), undo, Events())
    assert used(kept) == meanwhile
    assert queue(kept) == []


@pytest.mark.others_at_night
def test_it_is_refused_while_jobs_run(kept: LocalCluster, tmp_path: Path) -> None:
    back_up(name_of(kept), tmp_path / "slurm.tar", Events())
    options = ("-D/", "-o/dev/null", "--parsable", "--wrap", "sleep 600")
    job = kept.jail("sbatch", *options, user="ada").ok().strip()
    asked = ("squeue", "-hj", job, "-o", "%T")
    kept.wait_until("the job runs", lambda: kept.on("controller", *asked).out.strip() == "RUNNING")
    try:
        with pytest.raises(UsageError, match=rf"runs 1 jobs \({job}\)"):
            restore(name_of(kept), tmp_path / "slurm.tar", Events())
        assert kept.on("controller", *asked).ok().strip() == "RUNNING"
    finally:
        kept.on("controller", "scancel", job)
        kept.wait_until("it has ended", lambda: queue(kept) == [])


def test_jobs_that_ran_then_are_queued_again_or_gone(kept: LocalCluster, tmp_path: Path) -> None:
    options = ("-D/", "-o/dev/null", "--parsable", "--mem=100", "--requeue", "--wrap", "sleep 15")
    batch = kept.jail("sbatch", *options, user="ada").ok().strip()
    kept.jail("salloc", "--no-shell", "-n1", "--mem=100", "--immediate=60", user="ada").ok()
    assert len(queue(kept)) == 2
    back_up(name_of(kept), tmp_path / "slurm.tar", Events())
    kept.on("controller", "scancel", "--user=ada")
    kept.wait_until("both have ended", lambda: queue(kept) == [])

    events = Events()
    said: list[str] = []
    events.subscribe(lambda event: said.append(str(event)))
    restore(name_of(kept), tmp_path / "slurm.tar", events)
    kept.wait_until("nothing is left of the allocation", lambda: queue(kept) in ([batch], []))
    # Slurm lets a job that is queued again wait for two minutes.
    kept.on("controller", "scontrol", "update", f"jobid={batch}", "starttime=now").ok()
    asked = ("sacct", "-nXPj", batch, "--format=state")
    kept.wait_until("the batch job ran", lambda: kept.on("controller", *asked).out.split() == ["COMPLETED"])
    assert any(f"job {batch} ran when the backup was made, and is queued again" in line for line in said)


def rewritten(source: Path, target: Path, **changes: object) -> Path:
    """The same backup, with other words in what it says of itself."""
    with tarfile.open(source) as archive, tarfile.open(target, "x") as changed:
        for entry in archive:
            file = archive.extractfile(entry)
            assert file is not None
            if entry.name == "backup.json":
                (target.parent / "json").write_text(json.dumps({**json.load(file), **changes}))
                changed.add(target.parent / "json", "backup.json")
            else:
                changed.addfile(entry, file)
    return target


@pytest.mark.others_at_night
def test_what_is_no_backup_of_this_cluster_changes_nothing(kept: LocalCluster, tmp_path: Path) -> None:
    whole = tmp_path / "slurm.tar"
    made = back_up(name_of(kept), whole, Events())
    before = used(kept)
    for name, changes, says in (
        ("other", {"cluster": "other"}, "backup of cluster other"),
        ("release", {"release": "20.11"}, "of Slurm 20.11"),
        ("format", {"format": 2}, "format 2"),
        ("digest", {"files": {**made.files, "state/clustername": "0" * 64}}, "clustername is not what"),
        ("outside", {"files": {"state//etc/passwd": "0" * 64}}, "no backup has"),
        ("above", {"files": {"state/../x": "0" * 64}}, "no backup has"),
        ("missing", {"files": {"state/none": "0" * 64}}, "is no backup"),
        ("bare", {"files": {key: made.files[key] for key in made.files if key.startswith("state/")}}, "has"),
    ):
        file = rewritten(whole, tmp_path / f"{name}.tar", **changes)
        with pytest.raises((CellblockError, UsageError), match=says) as caught:
            restore(name_of(kept), file, Events())
        assert caught.value.hint
    (tmp_path / "short.tar").write_bytes(whole.read_bytes()[:-20000])
    (tmp_path / "text.tar").write_text("no archive\n")
    for file in (tmp_path / "short.tar", tmp_path / "text.tar", tmp_path / "none.tar"):
        with pytest.raises(CellblockError, match=str(file)):
            restore(name_of(kept), file, Events())
    with pytest.raises(UsageError, match="exists already"):
        back_up(name_of(kept), whole, Events())
    assert used(kept) == before
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith(".")) == []


@pytest.mark.others_at_night
def test_what_the_page_says(kept: LocalCluster, tmp_path: Path) -> None:
    lines = documented.lines_for("accounting.md", "test_what_the_page_says")
    assert len(lines) == 2
    for line in lines:
        words = line.replace("slurm.tar", str(tmp_path / "slurm.tar")).split()
        assert words[:2] == ["python3", "build.py"]
        command = [sys.executable, PROJECT / "build.py", *words[2:], "--name", name_of(kept)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
        assert done.returncode == 0, done.stderr
