# SPDX-License-Identifier: Apache-2.0
"""srun --container-image and its kind, in the jail, as a user who is not root."""

from __future__ import annotations

import pytest

from tests.integration.jobs import ended, home, script_file, submit
from tests.integration.local_cluster import LocalCluster
from tests.integration.pyxis.conftest import IMAGE, Containers

pytestmark = pytest.mark.integration


@pytest.mark.every_slurm
def test_an_image_by_path_on_two_nodes(containers: Containers) -> None:
    script = 'echo "$SLURM_PROCID $(hostname) $(id -un) $WHERE $LC_ALL $PWD"; cat /etc/os-release'
    done = containers.run(
        "-N2", "-n4", "--overcommit", "-l", f"--container-image={IMAGE}", "sh", "-c", script, WHERE="job"
    )
    lines = sorted(line for line in done.ok().splitlines() if "image C.UTF-8" in line)
    assert [line.split()[1] for line in lines] == ["0", "1", "2", "3"]
    assert {line.split()[2] for line in lines} == {"worker-1", "worker-2"}
    assert all(line.endswith(f" {containers.user} image C.UTF-8 /work dir") for line in lines)
    assert done.out.count("a test image") == 4
    assert containers.leftovers() == []


def test_root_of_the_jail_too(containers: Containers) -> None:
    assert "uid=0" in containers.run(f"--container-image={IMAGE}", "id", user="root").ok()


def test_mounts(containers: Containers) -> None:
    folder = home(containers.cluster, containers.user)
    (folder / "mounted").mkdir(exist_ok=True)
    (folder / "mounted/file").write_text("text\n")
    mounts = f"/home/{containers.user}/mounted:/mnt:ro,tmpfs:/scratch,./mounted:/again,umount:/dev/shm"
    script = (
        "cat /mnt/file /again/file; echo x > /scratch/x; cat /scratch/x; ls /dev/shm | wc -l; echo x > /mnt/x"
    )
    done = containers.image(f"--container-mounts={mounts}", f"-D/home/{containers.user}", "sh", "-c", script)
    assert done.out.split() == ["text", "text", "x", "0"]
    assert "Read-only file system" in done.err
    done = containers.image("--container-mounts=/nowhere:/mnt", "true")
    assert "pyxis: --container-mounts: source path does not exist: /nowhere\n" in done.err
    assert done.status == 1


@pytest.mark.every_slurm
def test_names(containers: Containers) -> None:
    """created, found again with what was written, joined while it runs, refused where the flag says so"""
    named = "--container-name=one"
    done = containers.image(f"{named}:create", "--container-writable", "sh", "-c", "echo kept > /kept")
    assert done.status == 0, done.err
    assert containers.run(named, "cat", "/kept").ok() == "kept\n"
    assert '"create" was passed' in containers.image(f"{named}:create", "true").err
    assert '"exec" was passed' in containers.run(f"{named}:exec", "true").err
    assert 'no container "two"' in containers.run("--container-name=two", "true").err
    script = f"""
        srun --overlap {named} sh -c 'while [ ! -e /tmp/seen ]; do sleep 0.1; done; cat /tmp/seen' &
        sleep 1
        srun --overlap {named}:exec sh -c 'echo together > /tmp/seen'; wait"""
    done = containers.script(script, "-n1", "-wworker-1")
    assert done.out == "together\n"


def test_two_nodes_make_one_named_container(containers: Containers) -> None:
    words = ("-N2", f"--container-image={IMAGE}", "--container-name=shared:create", "hostname")
    assert sorted(containers.run(*words).ok().split()) == ["worker-1", "worker-2"]


def test_a_running_container_is_its_users_alone(containers: Containers) -> None:
    """joined by another job of the same user, also as JOB.STEP; not by another user, nor by root"""
    cluster, user = containers.cluster, containers.user
    cluster.add_user("bob")
    folder = home(cluster, user)
    hold = "echo mine > /tmp/inside; echo > /mnt/ready; while [ ! -e /mnt/users-go ]; do sleep 0.1; done"
    image = f"--container-image={IMAGE} --container-mounts=/home/{user}:/mnt"
    for left in ("ready", "users-go"):
        (folder / left).unlink(missing_ok=True)
    text = f"srun {image} sh -c '{hold}'"
    job = submit(cluster, user, text, "-wworker-1", "-n1", "-o/dev/null", f"-D/home/{user}")
    try:
        cluster.wait_until("it runs", lambda: (folder / "ready").exists())
        join = ("-wworker-1", f"--container-name={job}.0:exec", "cat", "/tmp/inside")
        assert containers.run(*join).ok() == "mine\n"
        for other in ("bob", "root"):
            done = containers.run("-D/tmp", *join, user=other)
            assert done.status == 1
            assert "is not running on this node" in done.err
    finally:
        (folder / "users-go").touch()
    ended(cluster, job)
    assert containers.leftovers() == []


def test_save_and_use_what_was_saved(containers: Containers) -> None:
    options = ("--container-writable", "--container-save=saved.sqsh", f"-D/home/{containers.user}")
    done = containers.image(*options, "sh", "-c", "echo saved > /mark")
    assert f" to /home/{containers.user}/saved.sqsh\n" in done.err
    again = ("--container-image=./saved.sqsh", f"-D/home/{containers.user}")
    assert containers.run(*again, "cat", "/mark").ok() == "saved\n"
    assert containers.leftovers() == []


def test_nodes_that_save_to_one_file_leave_the_first_ones(containers: Containers) -> None:
    """whichever ends last"""
    folder = home(containers.cluster, containers.user)
    options = (
        "-N2",
        "-n2",
        "--container-writable",
        "--container-save=nodes.sqsh",
        f"-D/home/{containers.user}",
    )
    for late in (0, 1):
        wait = f'echo "node $SLURM_NODEID {late}" > /mark; [ $SLURM_NODEID != {late} ] || sleep 1'
        containers.image(*options, "sh", "-c", wait).ok()
        shown = containers.run("--container-image=./nodes.sqsh", options[-1], "cat", "/mark")
        assert shown.ok() == f"node 0 {late}\n"
    assert [path.name for path in folder.glob("*nodes.sqsh*")] == ["nodes.sqsh"]
    assert not list(folder.glob(".nodes.sqsh*"))


def test_who_one_is_and_what_one_may(containers: Containers) -> None:
    assert "uid=0(root)" in containers.image("--container-remap-root", "id").ok()
    assert "Read-only" in containers.image("--container-readonly", "sh", "-c", "echo > /x").err
    assert containers.image("--container-workdir=/usr/bin", "pwd").ok() == "/usr/bin\n"
    assert (
        "/nowhere: No such file or directory" in containers.image("--container-workdir=/nowhere", "pwd").err
    )
    net = ("--container-unshare=net,uts", "sh", "-c", "wc -l < /proc/net/dev")
    assert containers.image(*net).ok() == "3\n"
    seen = ("sh", "-c", "ls /home/*/.bashrc 2>/dev/null | wc -l")
    assert containers.image("--container-mount-home", *seen).ok() == "1\n"
    assert containers.image("--no-container-mount-home", *seen).ok() == "0\n"


def test_entrypoint(containers: Containers) -> None:
    ask = ("sh", "-c", 'echo "${FROM_RC:-not run} $PWD"')
    assert containers.image(*ask).ok() == "not run /work dir\n"
    done = containers.image("--container-entrypoint", *ask)
    assert (done.ok(), "speaks" in done.err) == ("entered /work dir\n", False)
    done = containers.image("--container-entrypoint", "--container-entrypoint-log", *ask)
    assert "pyxis:     the entrypoint speaks\n" in done.err


@pytest.mark.parametrize(
    ("text", "out", "err"),
    [
        ('exec 3>&1 9>&1; exec "$@"', "ran\n", "pyxis:     it speaks\n"),
        ('"$@"; sleep 1', "ran\n", "pyxis:     it speaks\n"),
        ("exit 0", "", "pyxis:   next: --no-container-entrypoint starts the container without it\n"),
    ],
)
def test_what_an_entrypoint_may_do(containers: Containers, text: str, out: str, err: str) -> None:
    """nginx's, among others, opens 3: there was the program that keeps the container; it never started"""
    rc = script_file(containers.cluster, containers.user, "rc", f"#!/bin/sh\necho it speaks\n{text}\n")
    entrypoint = ("--container-entrypoint", "--container-entrypoint-log", f"--container-mounts={rc}:/etc/rc")
    done = containers.image("-t1", *entrypoint, "sh", "-c", "echo ran")
    assert (done.out, err in done.err) == (out, True), done


@pytest.mark.every_slurm
def test_environment(containers: Containers) -> None:
    ask = ("sh", "-c", "echo $WHERE")
    assert containers.image(*ask, WHERE="job").ok() == "image\n"
    assert containers.image("--container-env=WHERE", *ask, WHERE="job").ok() == "job\n"
    by_variable = {"PYXIS_CONTAINER_IMAGE": IMAGE, "PYXIS_CONTAINER_REMAP_ROOT": "yes"}
    assert "uid=0(root)" in containers.run("id", **by_variable).ok()
    done = containers.run("--no-container-remap-root", "id", **by_variable)
    assert "uid=0" not in done.ok()


@pytest.mark.every_slurm
def test_batch_script(containers: Containers, cluster: LocalCluster) -> None:
    script = f"#!/bin/sh\n#SBATCH --container-image={IMAGE}\n#SBATCH -o container.out\ncat /etc/os-release\n"
    submit = "cd && cat > container.sh && sbatch --wait container.sh"
    cluster.jail("sh", "-c", submit, stdin=script, user=containers.user).ok()
    assert "a test image" in (home(cluster, containers.user) / "container.out").read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--container-image=",), "--container-image: the value is empty"),
        ((f"--container-image={IMAGE}", "--container-image=./other"), "given twice, with different values"),
        (("--container-writable", "--container-readonly"), "are both given"),
        (("--container-unshare=pid",), "unknown namespace 'pid'"),
        (("--container-mounts=relative:/x",), "the source is a path that begins with . or /"),
        (("--container-save=/tmp/",), 'ends with "/"'),
        (("--container-env=A,,B",), "a name is empty"),
    ],
)
def test_what_is_wrong_is_told_before_there_is_a_job(
    containers: Containers, words: tuple[str, ...], message: str
) -> None:
    done = containers.run(*words, "true")
    assert done.status != 0
    assert "pyxis: --container" in done.err
    assert message in done.err


def test_what_fails_on_the_node_says_why(containers: Containers) -> None:
    done = containers.run("-n2", "--overcommit", "--container-image=/nowhere.sqsh", "true")
    assert "there is no file /nowhere.sqsh on this node" in done.err
    assert "container was not started successfully by another task" in done.err
    assert "rc=-1" not in done.err
    done = containers.run("--container-mounts=/tmp:/tmp", "true")
    wanted = (
        "pyxis: ignoring --container-mounts because neither --container-image nor --container-name is set\n"
    )
    assert done.err == wanted
    assert done.status == 0


def test_a_cancelled_step_leaves_nothing(containers: Containers) -> None:
    script = f"""
        srun --container-image={IMAGE} --container-save=/tmp/x.sqsh sleep 60 & sleep 1.5
        scancel "$SLURM_JOB_ID.0"; wait || true; srun --container-image={IMAGE} cat /etc/os-release"""
    assert "a test image" in containers.script(script, "-n1").out
    containers.cluster.wait_until(
        "no process is left", lambda: not [line for line in containers.leftovers() if "pyxis_" not in line]
    )
