# SPDX-License-Identifier: Apache-2.0
"""docs/packages.md on a machine with Debian's Slurm: installed, tried by some jobs, attacked, and removed."""

from __future__ import annotations

import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cellblock.events import Events
from cellblock.jail.assemble import assemble
from tests.documented import lines_for
from tests.integration.archive import HAS_A_MIRROR
from tests.integration.packages.conftest import RELEASES, Machine

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(os.geteuid() != 0, reason="building images and running containers needs root"),
    HAS_A_MIRROR,
    pytest.mark.parametrize("variant", RELEASES, indirect=True, scope="session"),
]
PAGE = "packages.md"
# In the jail alone; and the other way round, what a job on the node sees.
INSIDE = "test -e /in-the-jail"
SPANK = "required spank_jail.so"
PYXIS = "required pyxis.so jail_enter=/usr/sbin/jail-enter"
# All of the machine but what daemons, users and the package manager's records change as they run.
FILES = (
    "find / -xdev \\( -path /proc -o -path /sys -o -path /dev -o -path /run -o -path /tmp -o -path /mnt "
    "-o -path /var/log -o -path /var/lib/slurm -o -path /var/lib/dpkg -o -path /var/cache "
    "-o -path /var/lib/apt -o -path /home -o -path /root -o -name __pycache__ \\) -prune -o -print | sort"
)


def use(machine: Machine, *arguments: str) -> None:
    """Write plugstack.conf, with these arguments of the jail, and start slurmd again."""
    lines = f"{SPANK} {' '.join(arguments)}\n{PYXIS}\n"
    machine.says(f"cat > /etc/slurm/plugstack.conf <<'END'\n{lines}END")
    machine.restart_slurmd()


def is_inside(machine: Machine, srun: str, user: str = "ann") -> bool:
    """Where a step runs; `srun` is the command up to the program. Neither is a failure."""
    said = machine.says(f"{srun} sh -c 'if {INSIDE}; then echo inside; else echo outside; fi'", user)
    assert ("inside" in said) != ("outside" in said), said
    return "inside" in said


@pytest.fixture(scope="module")
def installed(machine: Machine) -> Machine:
    """The machine once the page's lines for installing were typed."""
    for line in lines_for(PAGE, "test_a_job_a_container_and_ssh"):
        if machine.variant == "debian12" and "cellblock-tools" in line:
            continue  # it has none there: the volume is filled from another machine, which is this one
        if machine.variant == "debian12" and "jail assemble" in line:
            assemble(f"oci:{machine.layout}", machine.volume, Events())
            continue
        machine.says(line, timeout=600)
    # As an administrator of the jail would, who installs something there.
    machine.says("touch /mnt/jail/root/in-the-jail")
    programs = "/usr/bin/cat /usr/bin/bash"
    machine.says(
        "mkdir -p /root/small/usr/bin /root/small/etc && cd /root/small && ln -s usr/bin bin && "
        f"for file in {programs} $(ldd {programs} | grep -o '/lib[^ )]*' | sort -u); "
        "do install -D $file .$file; done; ln -sf bash usr/bin/sh; echo small > etc/small; "
        "mksquashfs . /home/ann/small.sqsh -quiet -no-progress -comp lz4; rm -r /root/small"
    )
    return machine


@pytest.fixture(scope="module")
def before(machine: Machine) -> str:
    """What is on the machine before anything is installed."""
    machine.says("cp -a /etc/slurm/plugstack.conf /root/")
    return machine.says(FILES)


@pytest.fixture(scope="module")
def trial(before: str, installed: Machine) -> Machine:
    """With the page's plugstack.conf."""
    use(installed, "jail-partitions=trial")
    return installed


def test_a_job_a_container_and_ssh(trial: Machine) -> None:
    assert is_inside(trial, "srun -p trial")
    assert not is_inside(trial, "srun -p normal")
    container = "--container-image=/home/ann/small.sqsh cat /etc/small"
    assert "small" in trial.says(f"srun -p trial {container}", "ann")
    assert "small" in trial.says(f"srun -p normal {container}", "ann")
    line = "session required pam_jail.so jail-jobs=yes"
    trial.says(f"grep -q pam_jail /etc/pam.d/sshd || echo '{line}' >> /etc/pam.d/sshd")
    trial.says(
        "rm -rf ~/.ssh; mkdir -p -m 700 ~/.ssh && ssh-keygen -q -t ed25519 -N '' -f ~/.ssh/id_ed25519 && "
        "cp ~/.ssh/id_ed25519.pub ~/.ssh/authorized_keys",
        "ann",
    )
    ssh = "ssh -o StrictHostKeyChecking=no -o BatchMode=yes localhost"
    # Nobody's job, and so no word of slurmctld's that this user is outside here.
    assert "inside" in trial.says(f"{ssh} '{INSIDE} && echo inside'", "ann")
    with_job = (
        "srun -p {} sh -c 'touch ~/runs; while [ -e ~/runs ]; do sleep 0.2; done' & "
        "while [ ! -e ~/runs ]; do sleep 0.1; done; "
    )
    after = "; rm ~/runs; wait"
    for partition, inside in (("normal", False), ("trial", True)):
        line = with_job.format(partition) + f"{ssh} '{INSIDE} && echo inside || echo outside'" + after
        assert ("inside" in trial.says(line, "ann")) == inside, partition
    both = with_job.format("normal") + with_job.format("trial").replace("runs", "runs2")
    said = trial.says(
        both + f"{ssh} '{INSIDE} && echo inside || echo outside'; rm ~/runs ~/runs2; wait", "ann"
    )
    assert "inside" in said
    # The job in which he was outside is over: its mark does not count.
    assert "inside" in trial.says(f"{ssh} '{INSIDE} && echo inside'", "ann")


@pytest.mark.parametrize(
    "way",
    [
        "SLURM_JOB_PARTITION=normal srun -p trial --export=ALL,SLURM_JOB_PARTITION=normal",
        "srun -p trial --jail=no",
        "SRUN_JAIL=no srun -p trial",
        "_SLURM_SPANK_OPTION_jail_jail=no SLURM_SPANK__SLURM_SPANK_OPTION_jail_jail=no srun -p trial",
        "salloc -Q -p trial srun --jail=no",
        "salloc -Q -p trial srun -p normal",
        "srun -p trial,trial",
        "srun -p trial --chdir=/tmp --export=NONE /usr/bin/env PATH=/usr/bin",
    ],
)
def test_no_job_of_the_partition_leaves_the_jail_by_what_its_user_says(trial: Machine, way: str) -> None:
    assert is_inside(trial, way)


def test_a_batch_script_and_its_steps_are_where_their_partition_is(trial: Machine) -> None:
    script = f'#!/bin/sh\\n{INSIDE} && echo script-inside\\nsrun sh -c "{INSIDE} && echo step-inside"\\n'
    for partition, number in (("trial", 2), ("normal", 0)):
        line = f"printf '{script}' > ~/job.sh; sbatch -W -Q -p {partition} -o ~/out ~/job.sh; cat ~/out"
        said = trial.run(line, "ann").stdout
        assert said.count("-inside") == number, (partition, said)


def test_a_job_that_is_requeued_and_moved_while_it_begins(trial: Machine, tmp_path: Path) -> None:
    """when slurmstepd asks, slurmctld has another partition for it"""
    plugin, source = tmp_path / "slow.so", Path(__file__).with_name("slow.c")
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", plugin, source], check=True)
    subprocess.run(["podman", "cp", plugin, f"{trial.name}:/usr/local/lib/slow.so"], check=True)
    trial.says("sed -i '1i required /usr/local/lib/slow.so' /etc/slurm/plugstack.conf")
    trial.restart_slurmd()
    try:
        script = f"#!/bin/sh\\ntrap : TERM\\n{INSIDE} || touch /home/ann/outside\\n"
        job = trial.says(
            f"printf '{script}' > ~/job.sh; sbatch --parsable -p trial -o /dev/null ~/job.sh", "ann"
        )
        trial.says("until [ $(pgrep -c -x slurmstepd) -ge 2 ]; do sleep 0.1; done")
        move = f"until scontrol update job={job.strip()} partition=normal; do sleep 0.1; done"
        trial.says(f"scontrol requeuehold {job.strip()}; {move}", "ann")
        trial.says("while pgrep -x slurmstepd; do sleep 0.2; done")
        assert trial.run("test -e ~/outside", "ann").returncode != 0
    finally:
        trial.says("scancel --user=ann; sed -i /slow.so/d /etc/slurm/plugstack.conf")
        trial.restart_slurmd()
    assert "drain" not in trial.says("sinfo -h -o %T"), "the user's doing drains no node"


def test_a_users_profile_runs_where_the_job_does(trial: Machine) -> None:
    """by `su - USER` of slurmd's"""
    assert "run a user's profile outside the jail" in trial.says("cat /var/log/slurmd.log")
    line = "session required pam_jail.so jail-jobs=yes"
    trial.says(f"grep -q pam_jail /etc/pam.d/su-l || echo '{line}' >> /etc/pam.d/su-l")
    where = f"{INSIDE} && echo inside || echo outside"
    profile = f"export READ=read; ({where}) >> ~/profile-ran"
    trial.says(f"echo '{profile}' > ~/.bash_profile", "ann")
    for option in ("--get-user-env", "--export=NONE"):
        for partition, place in (("trial", "inside"), ("normal", "outside")):
            submit = f"sbatch -W -Q -p {partition} {option} -o ~/out --wrap='echo script $READ'"
            said = trial.says(f"rm -f ~/profile-ran; {submit}; cat ~/out ~/profile-ran", "ann")
            assert said.split() == ["script", "read", place], (partition, option, said)
    trial.says("rm ~/.bash_profile", "ann")


def test_nobody_becomes_root_inside(trial: Machine) -> None:
    trial.says(
        "cp /usr/bin/id /mnt/jail/root/usr/bin/id-of-root; chmod 4755 /mnt/jail/root/usr/bin/id-of-root"
    )
    assert trial.says("srun -p trial id-of-root -u", "ann").strip() == "1001"
    trial.says("echo 'ann ALL=(ALL) NOPASSWD: ALL' > /mnt/jail/root/etc/sudoers.d/ann 2>/dev/null || true")
    assert trial.run("srun -p trial sudo -n id -u", "ann").returncode != 0


def test_options_that_would_be_forgotten_end_the_job(trial: Machine) -> None:
    for option in ("--jail", "--jail-readonly"):
        done = trial.run(f"srun -p normal {option} true", "ann")
        assert done.returncode != 0
        assert f"{option}: this job is not in the jail, which is for some partitions" in done.stdout
    assert "drain" not in trial.says("sinfo -h -o %T"), "the user's mistake drains no node"


def test_a_slurmctld_that_does_not_answer_lets_nobody_out(trial: Machine) -> None:
    """slurmstepd, which asks, is root's; the user's srun is answered, and has its step begun."""
    rule = ["OUTPUT", "-p", "tcp", "--dport", "6817", "-m", "owner", "--uid-owner", "0", "-j", "REJECT"]
    step = f"srun sh -c '{INSIDE} || echo outside'"
    # In an allocation: slurmd, which is root's, too, has told slurmctld of its prolog.
    wait = "srun true; touch ~/held; while [ ! -e ~/go ]; do sleep 0.1; done"
    script = f'rm -f ~/held ~/go; salloc -Q -p trial bash -c "{wait}; {step}; echo status $?"'
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(trial.run, script.replace("$", "\\$"), "ann")
        trial.says("while [ ! -e ~ann/held ]; do sleep 0.1; done")
        trial.in_its_network("iptables", "--append", *rule)
        try:
            trial.says("touch ~ann/go")
            # Then only the step's end is left to tell slurmctld, which 26.05's slurmstepd tries for minutes.
            refused = "grep -q 'does not say which partition job' /var/log/slurmd.log"
            trial.says(f"for i in $(seq 500); do {refused} && exit; sleep 0.2; done; exit 1")
        finally:
            trial.in_its_network("iptables", "--delete", *rule)
        said = done.result().stdout
    assert "slurmctld does not say which partition job" in said
    assert "outside" not in said
    assert "status 0" not in said
    trial.wait()
    assert "drain" not in trial.says("sinfo -h -o %T")


def test_a_plugin_of_another_release_is_refused(trial: Machine) -> None:
    (line,) = lines_for(PAGE, "test_a_plugin_of_another_release_is_refused")
    trial.says(line)
    version = trial.says("slurmd -V").split()[1]
    major, minor, micro = (int(part) for part in version.split("."))
    # What another release would have compiled: the number in the plugin is all that Slurm's loader looks at.
    plugin = "/usr/lib/x86_64-linux-gnu/slurm-wlm/spank_jail.so"
    code = (
        f"b = open('{plugin}', 'rb').read(); old = bytes([{micro}, {minor}, {major}, 0]); "
        "assert b.count(old) == 1; "
        "open('/tmp/spank_jail.so', 'wb').write(b.replace(old, bytes([0, 2, 23, 0])))"
    )
    trial.says(f'python3 -c "{code}"')
    done = trial.run(line.replace(plugin, "/tmp/spank_jail.so"))
    assert done.returncode == 1
    assert f"is built for Slurm 23.02, and this image has slurm-wlm {trial.release}" in done.stdout
    trial.says("sed -i 's|^required spank_jail.so|required /tmp/spank_jail.so|' /etc/slurm/plugstack.conf")
    done = trial.run("srun -p trial true", "ann")
    trial.says("sed -i 's|^required /tmp/spank_jail.so|required spank_jail.so|' /etc/slurm/plugstack.conf")
    assert done.returncode != 0
    assert "Incompatible" in done.stdout


def test_nvidias_lines_of_plugstack_stay(trial: Machine) -> None:
    """As docs/from-enroot-and-pyxis.md says: a path with arguments, and a link to the package's file."""
    container = "srun --container-image=/home/ann/small.sqsh cat /etc/small"
    arguments = (
        "runtime_path=/run/pyxis execute_entrypoint=0 container_scope=global sbatch_support=1 "
        "use_enroot_load=0 use_squashfuse=1"
    )
    plugin = "/usr/lib/x86_64-linux-gnu/slurm-wlm/spank_pyxis.so"
    folder = "/etc/slurm/plugstack.conf.d"
    was_there = trial.run(f"test -d {folder}").returncode == 0  # Debian's package has it, empty
    trial.says("chmod 0666 /dev/fuse")  # as udev makes it: without jail_enter= images are mounted by FUSE
    try:
        for line, link in (
            (f"required {plugin} {arguments}", False),
            (f"include {folder}/*", True),
        ):
            trial.says(f"echo '{line}' > /etc/slurm/plugstack.conf")
            if link:
                trial.says(f"mkdir -p {folder} && ln -s /usr/share/pyxis/pyxis.conf {folder}/pyxis.conf")
            trial.restart_slurmd()
            assert "small" in trial.says(container, "ann")
    finally:
        trial.says(f"rm -f {folder}/pyxis.conf" if was_there else f"rm -rf {folder}")
        use(trial, "jail-partitions=trial")


def test_users_groups_and_requests(trial: Machine) -> None:
    use(trial, "jail-users=1001", "jail-groups=2000", "jail-by-request=yes")
    assert is_inside(trial, "srun", "ann")
    assert is_inside(trial, "srun --jail=no", "ann")
    assert is_inside(trial, "srun", "ben")
    # As by `sg users`: his primary group of /etc/passwd is not the job's.
    assert trial.says("srun id -g", "ben:users").strip() == "100"
    assert is_inside(trial, "srun", "ben:users")
    assert not is_inside(trial, "srun", "cid")
    assert is_inside(trial, "srun --jail", "cid")
    assert is_inside(trial, "SRUN_JAIL=yes srun", "cid")
    assert not is_inside(trial, "srun --jail=no", "cid")


def test_all_of_it_goes_without_a_trace(trial: Machine, before: str) -> None:
    trial.says("mv /root/plugstack.conf /etc/slurm/; sed -i /pam_jail/d /etc/pam.d/sshd /etc/pam.d/su-l")
    trial.restart_slurmd()
    for line in lines_for(PAGE, "test_all_of_it_goes_without_a_trace"):
        trial.says(line, timeout=300)
    assert trial.says(FILES).splitlines() == before.splitlines()
    assert trial.says("dpkg-query -W -f '${Package}\\n' | grep -c cellblock || true").strip() == "0"
    assert trial.says("ls -d /run/cellblock /run/pyxis 2>/dev/null || true") == ""
    assert trial.says("find /mnt/jail -mindepth 1") == ""
    assert not trial.run("srun true", "ann").returncode
