"""Ways out that need jobs of their own: options of Slurm's commands, libraries, other commands of Slurm.

Each returns how it ended, from what is seen on the worker or in the job's output.
"""

from __future__ import annotations

import shutil
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cellblock.cluster.containers import container_name
from tests.integration.escape.arena import WORKER, Arena, Outcome, broken, escaped, held, read


def _fresh(arena: Arena) -> Path:
    """An empty folder in the jail for a case's files."""
    return arena.out(uuid.uuid4().hex[:12])


def _judge_secret(arena: Arena, text: str, otherwise: str) -> Outcome:
    """Whether `text` has what only a file outside holds."""
    return escaped("the canary was read") if arena.secret in text else held(otherwise)


def _judge_mark(arena: Arena, otherwise: str, *folders: str, hostname: str = WORKER) -> Outcome:
    """Whether one of the folders outside has a file with our mark."""
    found = arena.written(*folders, hostname=hostname)
    return escaped(f"{found} was written on {hostname}") if found else held(otherwise)


def _last_line(text: str) -> str:
    return text.strip().splitlines()[-1] if text.strip() else "no word"


def directory_as_input(arena: Arena, user: str) -> Outcome:
    """A descriptor of a directory of the window, from which `..` might lead out."""
    out = _fresh(arena)
    for number, folder in enumerate(("/", "/tmp", "/escape")):
        script = f"{arena.attack('kept-descriptors')} >{arena.inside(out)}/{number}"
        arena.sbatch(script, "-i", folder, "-o", "/dev/null", user=user)
        outcome = Outcome.read(read(out / str(number)) or "held: the task was refused")
        if outcome.kind != "held":
            return outcome
    return held("no task had a directory for input that led out")


def output_by_proc(arena: Arena, user: str) -> Outcome:
    """Output files are opened by slurmstepd, for root as root."""
    for path in ("/proc/1/root/root", "/proc/1/root/tmp", "/proc/1/cwd", "/proc/self/root/proc/1/root/tmp"):
        arena.sbatch("echo out", "-o", f"{path}/{arena.mark}", user=user)
    return _judge_mark(arena, "no file outside", "/root", "/tmp", "", "/var/spool/slurmd")


def input_by_proc(arena: Arena, user: str) -> Outcome:
    """Input files are, too."""
    out = _fresh(arena)
    arena.sbatch("cat", "-i", f"/proc/1/root{arena.canary}", "-o", f"{arena.inside(out)}/0", user=user)
    return _judge_secret(arena, read(out / "0"), "the canary was not read")


def input_by_descriptor(arena: Arena, user: str) -> Outcome:
    """What slurmstepd itself has open, by number."""
    out = _fresh(arena)
    here = arena.inside(out)
    # A file that the jail does not have under the name it shows: the node's.
    script = 'f=$(readlink /proc/self/fd/0); case $f in /*) [ -e "$f" ] || echo "file $f";; esac'
    lines = [
        f"sbatch -w {WORKER} -i /proc/self/fd/{number} -o {here}/{number} --wrap '{script}'"
        for number in range(3, 24)
    ]
    arena.cluster.jail("bash", "-c", "\n".join(lines), user=user)
    arena.cluster.wait_until("they are over", lambda: not arena.cluster.jail("squeue", "-h").out)
    seen = "".join(read(path) for path in out.iterdir())
    found = [line for line in seen.splitlines() if line.startswith("file ")]
    return escaped(f"slurmstepd's {found[0]} was opened") if found else held("no file of slurmstepd's")


def folder_by_proc(arena: Arena, user: str) -> Outcome:
    """slurmstepd changes to the job's folder before the task enters the jail, and after."""
    done = arena.srun("sh", "-c", f"cat ../..{arena.canary} .{arena.canary}; pwd",
                      options=("--chdir=/proc/1/root",), user=user)  # fmt: skip
    return _judge_secret(arena, done.out, _last_line(done.err))


def _output_into(arena: Arena, folder: str, user: str) -> Outcome:
    arena.sbatch("echo out", "-o", f"{folder}/{arena.mark}", user=user)
    return _judge_mark(arena, f"nothing in {folder}", folder)


def output_in_conf_cache(arena: Arena, user: str) -> Outcome:
    """plugstack.conf is there, which names what slurmstepd loads."""
    return _output_into(arena, "/var/spool/slurmd/conf-cache", user)


def output_in_spool(arena: Arena, user: str) -> Outcome:
    """slurmd reads files of its spool, and runs the scripts of jobs from it."""
    return _output_into(arena, "/var/spool/slurmd", user)


def enter_init(arena: Arena, user: str) -> Outcome:
    """util-linux' own way."""
    done = arena.srun("nsenter", "-t", "1", "-m", "cat", arena.canary, user=user)
    return _judge_secret(arena, done.out, _last_line(done.err))


def _mounts_outside(arena: Arena) -> int:
    return int(arena.on_worker("sh", "-c", "grep -vc /run/cellblock/jail/ /proc/1/mountinfo").ok())


def swapped_targets(arena: Arena, user: str) -> Outcome:
    """Somebody on another node swaps what the plan mounts on for links, while steps start here."""
    root = arena.cluster.root
    pairs = [(root / "etc/slurm", "/proc/1/root/root"), (root / "var/spool", "/../../../../../../root")]
    before = _mounts_outside(arena)
    program = arena.folder / "attack"
    swapping = []
    for path, target in pairs:
        link = path.with_name(f"{path.name}-link")
        link.symlink_to(target)
        swapping.append(subprocess.Popen([program, "swap"], env={"PATH_A": str(path), "PATH_B": str(link)}))
    try:
        # Each round in one allocation: what is looked for is in the steps' starts.
        script = (
            "for i in $(seq 50); do srun --overlap -n1 --immediate=30"
            f" sh -c 'cat {arena.canary} /etc/slurm{arena.canary} /var/spool{arena.canary}; echo ran' &"
            " (( i % 10 )) || wait; done; wait"
        )
        # From outside the jail: the commands themselves would miss their configuration inside.
        done = arena.on_worker("salloc", "-w", WORKER, "--overcommit", "bash", "-c", script)
    finally:
        for process in swapping:
            process.terminate()
            process.wait()
        for path, _ in pairs:
            link = path.with_name(f"{path.name}-link")
            if path.is_symlink():
                path.unlink()
                link.rename(path)
            else:
                link.unlink()
    arena.cluster.on("controller", "scontrol", "update", f"NodeName={WORKER}", "State=RESUME")
    # The job's own, which its epilog takes away.
    for _ in range(60):
        if (after := _mounts_outside(arena)) == before:
            break
        time.sleep(0.5)
    if arena.secret in done.out or "canary-" in done.out:
        return escaped("a step saw the outside's files")
    if "ran" not in done.out:
        return broken(f"no step ran: {done.err[-2000:]}")
    if before != after:
        return escaped(f"mounts outside: {before} before, {after} after")
    return held("50 steps saw the jail, or nothing")


def _prolog(arena: Arena, user: str, option: str) -> Outcome:
    """`option` names a program that Slurm runs around the task; BASH_ENV makes it another."""
    out = _fresh(arena)
    name = arena.inside(out)
    look = f"cat {arena.canary} >>/mnt/jail/root{name}/seen 2>/dev/null\ncat {arena.canary} >>{name}/seen\n"
    own, other = out / "own.sh", out / "other.sh"
    own.write_text(f"#!/bin/sh\n{look}echo own >>{name}/ran\n")
    other.write_text(f"{look}echo other >>{name}/ran\n")
    own.chmod(0o755)
    arena.srun("true", options=(f"--task-{option}={name}/own.sh",), user=user)
    variables = f"BASH_ENV={name}/other.sh"
    command = ("env", variables, "srun", "-w", WORKER, f"--task-{option}=/bin/bash", "true")
    arena.cluster.jail(*command, user=user)
    # The epilog's end is not waited for by srun.
    arena.cluster.wait_until(f"the {option}s ran", lambda: {"own", "other"} <= set(read(out / "ran").split()))
    return _judge_secret(arena, read(out / "seen"), f"the {option} ran in the jail")


def task_prolog(arena: Arena, user: str) -> Outcome:
    return _prolog(arena, user, "prolog")


def task_epilog(arena: Arena, user: str) -> Outcome:
    return _prolog(arena, user, "epilog")


def _judge_loaded(arena: Arena, *, by_tasks: bool) -> Outcome:
    """Who loaded the library: programs of the jail may, Slurm's daemons may not."""
    loaded = arena.folder / "out" / "loaded"
    names = set(read(loaded).split())
    loaded.unlink(missing_ok=True)
    bad = sorted(name for name in names if name.startswith(("slurmstepd", "slurmd", "munged")))
    if bad:
        return escaped(f"{', '.join(bad)} loaded a library of the jail")
    if by_tasks and not names:
        return broken("nobody loaded the library: the way does not work at all")
    return held(f"loaded by {', '.join(sorted(names)) or 'nobody'}")


def preloaded_library(arena: Arena, user: str) -> Outcome:
    """Variables of the dynamic linker, exported by the job."""
    library = "/escape/lib/loaded.so"
    plain = arena.folder / "out" / "loaded"
    plain.unlink(missing_ok=True)
    variables = (f"LD_PRELOAD={library}", f"LD_AUDIT={library}", "LD_LIBRARY_PATH=/escape/lib")
    arena.cluster.jail("env", *variables, "srun", "-w", WORKER, "true", user=user)
    arena.sbatch("true", f"--export=ALL,{','.join(variables)}", "-o", "/dev/null", user=user)
    return _judge_loaded(arena, by_tasks=True)


@contextmanager
def _changed(path: Path, text: str) -> Iterator[None]:
    """A file of the jail with another text for a while; one that was not there is gone afterwards."""
    before = path.read_bytes() if path.exists() else None
    path.write_text(text)
    try:
        yield
    finally:
        if before is None:
            path.unlink()
        else:
            path.write_bytes(before)


def name_service_library(arena: Arena, user: str) -> Outcome:
    """The jail's nsswitch.conf names a service whose library is the jail's, and ld.so.preload one for all."""
    root = arena.cluster.root
    folder = next(path.parent for path in root.glob("usr/lib/*-linux-gnu/libc.so.6"))
    library = folder / "libnss_escape.so.2"
    shutil.copy(arena.folder / "lib" / "loaded.so", library)
    switch = root / "etc" / "nsswitch.conf"
    lines = "".join(f"{name}: escape files\n" for name in ("passwd", "group", "shadow"))
    lines += "hosts: escape files dns\n"
    try:
        with _changed(switch, lines), _changed(root / "etc" / "ld.so.preload", "/escape/lib/loaded.so\n"):
            arena.srun("id", "root", user=user)
            arena.sbatch("id root", "-o", f"{arena.inside(_fresh(arena))}/0", user=user)
    finally:
        library.unlink()
    return _judge_loaded(arena, by_tasks=True)


def character_set_library(arena: Arena, user: str) -> Outcome:
    """Locales and character sets are files, and libraries, too."""
    folder = arena.folder / "lib" / "gconv"
    folder.mkdir(exist_ok=True)
    shutil.copy(arena.folder / "lib" / "loaded.so", folder / "ESCAPE.so")
    (folder / "gconv-modules").write_text(
        "module ESCAPE// INTERNAL ESCAPE 1\nmodule INTERNAL ESCAPE// ESCAPE 1\n"
    )
    inside = "/escape/lib/gconv"
    variables = (f"GCONV_PATH={inside}", f"LOCPATH={inside}", "LANG=xx_XX.ESCAPE", "LC_ALL=xx_XX.ESCAPE",
                 f"HWLOC_PLUGINS_PATH={inside}", f"UCX_MODULE_DIR={inside}",
                 f"PMIX_MCA_mca_base_component_path={inside}")  # fmt: skip
    arena.cluster.jail("env", *variables, "srun", "-w", WORKER, "true", user=user)
    arena.sbatch("iconv -f ESCAPE -t UTF-8 </etc/passwd", "-o", "/dev/null",
                 f"--export=ALL,{','.join(variables)}", user=user)  # fmt: skip
    return _judge_loaded(arena, by_tasks=False)


def plugin_by_path(arena: Arena, user: str) -> Outcome:
    """Options that become names of plugins."""
    target = "../../../../../mnt/jail/root/escape/lib/loaded"
    for option in (
        f"--mpi={target}",
        f"--profile={target}",
        f"--acctg-freq={target}=1",
        f"--container={target}",
    ):
        arena.srun("true", options=(option,), user=user)
    return _judge_loaded(arena, by_tasks=False)


def steering_variables(arena: Arena, user: str) -> Outcome:
    """What the plugin reads must not come from the job."""
    variables = {
        "SLURMD_NODENAME": "../../../root",
        "SLURM_CONF": "/escape/slurm.conf",
        "SLURM_PLUGSTACK": "/escape/plugstack.conf",
        "SLURM_LEVEL": "none",
        "SLURM_SPANK_JAIL_ROOT": "/",
        "SPANK_JAIL_ROOT": "/",
        "CELLBLOCK_JAIL_ROOT": "/",
        "_SLURM_SPANK_OPTION_jail_no_jail": "1",
        "SLURM_NO_JAIL": "1",
        "SPANK__SLURM_SPANK_OPTION_jail_no_jail": "1",
    }
    exported = ",".join(f"{key}={value}" for key, value in variables.items())
    script = f"cat {arena.canary}; head -1 /etc/cellblock/jail-release"
    one = arena.srun("sh", "-c", script, options=(f"--export=ALL,{exported}",), user=user)
    plain = {key: value for key, value in variables.items() if key != "SLURM_CONF"}
    command = ("env", *(f"{key}={value}" for key, value in plain.items()), "srun", "-w", WORKER)
    two = arena.cluster.jail(*command, "sh", "-c", script, user=user)
    return _judge_secret(arena, one.out + two.out, f"{_last_line(one.out)}; {_last_line(two.out)}")


def no_jail(arena: Arena, user: str) -> Outcome:
    """Root inside a job is uid 0 to Slurm, and may forget that it is in a job."""
    out = _fresh(arena)
    here = arena.inside(out)
    attempts = (
        f"srun --overlap --no-jail cat {arena.canary}",
        f"env -i PATH=$PATH srun --immediate=5 -w {WORKER} --overcommit --no-jail cat {arena.canary}",
        f"env -i PATH=$PATH sbatch --no-jail -o {here}/batch --wrap 'cat {arena.canary}'",
        f"SLURM_NO_JAIL=1 srun --overlap cat {arena.canary}",
        f"SLURM_SPANK_JAIL_NO_JAIL=1 SBATCH_NO_JAIL=1 srun --overlap cat {arena.canary}",
    )
    script = "\n".join(f"{attempt} >>{here}/seen 2>&1" for attempt in attempts)
    arena.sbatch(script, "-o", "/dev/null", user=user)
    batch = arena.sbatch(
        f"#SBATCH --no-jail\ncat {arena.canary}", "-o", f"{here}/own", user=user, refusable=True
    )
    text = "".join(read(out / name) for name in ("seen", "batch", "own"))
    if not text:
        return broken(f"the job did not run: {batch.err}")
    return _judge_secret(arena, text, _last_line(text))


def odd_steps(arena: Arena, user: str) -> Outcome:
    """Kinds of steps that Slurm starts in its own way."""
    out = _fresh(arena)
    options = ("--interactive", "--external-launcher", "--overlap --multi-prog", "--overlap --pty",
               "--overlap --export=NONE", "--overlap --label", "--overlap --mpi=none", "--overlap -Z",
               "--overlap --kill-on-bad-exit=0 --unbuffered", "--overlap --preserve-env")  # fmt: skip
    (out / "programs").write_text(f"0 cat {arena.canary}\n")
    lines = []
    for number, option in enumerate(options):
        what = f"{arena.inside(out)}/programs" if "multi-prog" in option else f"cat {arena.canary}"
        lines.append(f"timeout 10 srun -n1 {option} {what} >{arena.inside(out)}/{number} 2>&1 </dev/null")
    arena.sbatch("\n".join(lines), "-o", "/dev/null", user=user)
    text = "".join(read(out / str(number)) for number in range(len(options)))
    if "No such file" not in text:
        return broken(f"no step ran: {text}")
    return _judge_secret(arena, text, _last_line(text))


def another_jobs_step(arena: Arena, user: str) -> Outcome:
    """Root may add steps to anybody's job."""
    job = arena.cluster.jail(
        "sbatch", "--parsable", "-w", WORKER, "-o", "/dev/null", "--wrap", "sleep 60", user="eve"
    )
    number = job.ok().strip()
    try:
        arena.cluster.wait_until("it runs", lambda: arena.cluster.job(number)["JobState"] == "RUNNING")
        done = arena.srun("cat", arena.canary, options=(f"--jobid={number}", "--overlap"), user=user)
    finally:
        arena.cluster.jail("scancel", number)
    return _judge_secret(arena, done.out, _last_line(done.err))


def users_environment(arena: Arena, user: str) -> Outcome:
    """--get-user-env makes Slurm run a login shell of the user."""
    out = _fresh(arena)
    profile = arena.cluster.root / "root" / ".bash_profile"
    look = f"cat {arena.canary} | tee -a /mnt/jail/root{arena.inside(out)}/seen >>{arena.inside(out)}/seen"
    with _changed(profile, f"({look}) 2>/dev/null\n"):
        arena.sbatch("true", "--get-user-env", "-o", f"{arena.inside(out)}/0", user=user)
    return _judge_secret(arena, read(out / "seen"), "no login shell saw the outside")


def pushed_input(arena: Arena, user: str) -> Outcome:
    """A terminal's input queue outlives the program that pushed to it."""
    arena.cluster.jail(
        "srun", "-w", WORKER, "--pty", "sh", "-c", arena.attack("push-input"), user=user, tty=True
    )
    outcome = _judge_mark(arena, "nobody outside read it", "/root")
    return (
        outcome if outcome.kind == "escaped" else _judge_mark(arena, outcome.what, "/root", hostname="login")
    )


def sbcast(arena: Arena, user: str) -> Outcome:
    """Served by slurmd, which asks no SPANK plugin."""
    arena.sbatch(f"sbcast /etc/hostname /root/{arena.mark}", "-o", "/dev/null", user=user)
    return _judge_mark(arena, "no file outside", "/root")


def srun_bcast(arena: Arena, user: str) -> Outcome:
    """sbcast by an option."""
    arena.srun("true", options=(f"--bcast=/root/{arena.mark}",), user=user)
    return _judge_mark(arena, "no file outside", "/root")


def strigger(arena: Arena, user: str) -> Outcome:
    """Programs that slurmctld runs when something happens, asked for by who is SlurmUser inside."""
    program = f"/usr/bin/touch /tmp/{arena.mark}"
    script = (
        f"setpriv --reuid slurm --regid slurm --clear-groups strigger --set --fini --jobid=$SLURM_JOB_ID"
        f" '--program={program}'"
    )
    out = _fresh(arena)
    arena.sbatch(script, "-o", f"{arena.inside(out)}/said", user=user)
    refused = read(out / "said")
    if not refused:
        # slurmctld looks at its triggers every 15 s.
        for _ in range(25):
            outcome = _judge_mark(arena, "the program did not run", "/tmp", hostname="controller")
            if outcome.kind == "escaped":
                return outcome
            time.sleep(1)
    return _judge_mark(arena, _last_line(refused), "/tmp", hostname="controller")


_ROGUE = """ClusterName=rogue
SlurmctldHost={worker}(127.0.0.1)
SlurmctldPort=16817
SlurmctldParameters=enable_configless
AuthType=auth/munge
SlurmUser=root
StateSaveLocation={folder}
SlurmctldPidFile={folder}/pid
SlurmdSpoolDir=/var/spool/slurmd
SlurmdLogFile=/var/log/slurm/slurmd.log
ProctrackType=proctrack/linuxproc
NodeName=rogue NodeAddr={worker} Port=6818
PartitionName=main Nodes=ALL
"""


def rogue_controller(arena: Arena, user: str) -> Outcome:
    """A slurmctld of the user's own, in a job, hands slurmd a configuration: plugstack.conf is in it.

    On the other worker, which nothing else uses and which is not repaired: its slurmd may end by that.
    """
    out = _fresh(arena)
    here, other = arena.inside(out), "worker-2"
    cache = "/var/spool/slurmd/conf-cache/plugstack.conf"
    good = arena.cluster.on(other, "cat", cache).ok()
    program = out / "slurmctld"
    controller = container_name(arena.cluster.request.name, "controller")
    with program.open("wb") as file:
        subprocess.run(["podman", "exec", controller, "cat", "/usr/sbin/slurmctld"], stdout=file, check=True)
    program.chmod(0o755)
    (out / "slurm.conf").write_text(_ROGUE.format(worker=other, folder=here))
    (out / "plugstack.conf").write_text(f"# {arena.mark}\n{good}")
    script = (
        f"export SLURM_CONF={here}/slurm.conf; cd {here}\n"
        "timeout 8 ./slurmctld -D -i -f $SLURM_CONF >log 2>&1 &\n"
        # Until it answers.
        "for i in $(seq 50); do scontrol ping | grep -q UP && break; sleep 0.1; done\n"
        "scontrol reconfigure >>said 2>&1; echo asked >>said; sleep 2; kill %1; wait"
    )
    arena.cluster.jail("timeout", "30", "srun", "-w", other, "bash", "-c", script, user=user)
    worker = container_name(arena.cluster.request.name, other)
    said = read(out / "said")
    # Also of a container that has ended.
    subprocess.run(["podman", "cp", f"{worker}:{cache}", str(out / "found")], check=True)
    if "asked" not in said:
        return broken(f"the rogue did not run: {said}{read(out / 'log')}")
    if arena.mark in read(out / "found"):
        return escaped("slurmd took its plugstack.conf")
    return held(_last_line(said))
