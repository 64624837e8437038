# SPDX-License-Identifier: Apache-2.0
"""What docs/pyxis.md promises, as one sees it in a shell: many steps of one allocation, which is cheap."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tests.integration.local_cluster import Done
from tests.integration.pyxis.conftest import IMAGE, Containers

pytestmark = pytest.mark.integration

STEP = "srun --overlap -n1"
IN = f"{STEP} --container-image={IMAGE}"
MARK = "=table="
FILES = """rm -rf ~/table; mkdir ~/table; cd ~/table; mkdir d 's p' 'ü+ü=#' '${HOME}'
echo in d > d/f; echo a file > f; echo blank > 's p/f'; echo odd > 'ü+ü=#/f'; echo dollar > '${HOME}/f'
ln -s d link; ln -s nowhere dangling"""
TEST_IMAGE = 'NAME="a test image"'


@dataclass(frozen=True)
class Case:
    """A line of shell, in a directory of its own; what is printed, part of what stands on standard error."""

    line: str
    out: str | None = ""
    err: str = ""
    """Nothing: standard error is empty, if the line ends well."""
    status: int = 0


def mounts(given: str, command: str, out: str = "", err: str = "", status: int = 0) -> Case:
    return Case(f"{IN} '--container-mounts={given}' {command}", out, err, status)


def mount_cases(here: str) -> list[Case]:
    return [
        mounts(f"{here}/d", f"cat {here}/d/f", "in d"),
        mounts(f"{here}/d:/new/deep", "stat -c %a /new", "755"),
        mounts(f"{here}/f:/new/file", "cat /new/file", "a file"),
        mounts(f"{here}/f:/etc/os-release", "cat /etc/os-release", "a file"),
        mounts("../table/d:./relative", "cat /relative/f", "in d"),
        mounts(f"{here}/s p:/s p", 'cat "/s p/f"', "blank"),
        mounts(f"{here}/ü+ü=#:/mnt", "cat /mnt/f", "odd"),
        mounts(f"{here}/${{HOME}}:/mnt", "cat /mnt/f", "dollar"),
        mounts(f"{here}/link:/mnt", "cat /mnt/f", "in d"),
        mounts(f"{here}/d:/mnt,{here}/f:/mnt/f", "cat /mnt/f", "a file"),
        mounts(f"{here}/d:/mnt,umount:/mnt", "ls -A /mnt"),
        mounts("tmpfs:/t:size=1M+ro", "sh -c 'echo > /t/x'", err="Read-only", status=2),
        mounts("umount:/usr", "true", err="nothing is mounted there", status=1),
        mounts("umount:/nowhere", "true", err="/nowhere", status=1),
        mounts("./nowhere:/mnt", "true", err='the source "./nowhere" is missing', status=1),
        mounts("./nowhere:/mnt:nofail", "cat /etc/os-release", TEST_IMAGE),
        mounts(f"{here}/dangling:/mnt", "true", err=f"path does not exist: {here}/dangling\n", status=1),
        mounts("/root/x:/mnt", "true", err="source path cannot be reached: /root/x", status=1),
        mounts(f"{here}/f:/../x", "true", err="Invalid cross-device link", status=255),
        mounts(f"{here}/f:/usr", "true", err="is one a directory", status=1),
    ]


ENVIRONMENT = [
    Case(f"env WHERE= {IN} --container-env=WHERE sh -c 'echo [$WHERE]'", "[]"),
    Case(f"{IN} --container-env=WHERE,NOSUCH sh -c 'echo [$WHERE$NOSUCH]'", "[image]"),
    Case(f"LC_ALL=POSIX LANG=x {IN} sh -c 'echo $LC_ALL [$LANG]'", "C.UTF-8 []"),
    Case(f"LC_ALL=POSIX LANG=x {IN} --container-env=LC_ALL,LANG sh -c 'echo $LC_ALL [$LANG]'", "POSIX [x]"),
    Case(f"PYTORCH_VERSION=2 RANK=7 {IN} sh -c 'echo $RANK $LOCAL_RANK'", "0 0"),
    Case(f"PYTORCH_VERSION=2 RANK=7 {IN} --container-env=RANK sh -c 'echo $RANK $LOCAL_RANK'", "7 0"),
    Case(f"A=1 {IN} --export=NONE sh -c 'echo [$A] $WHERE $HOME'", "[] image /home/ada"),
    Case(f"A=1 {IN} --export=B=2 sh -c 'echo [$A] $B'", "[] 2"),
    Case(f"ENROOT_REMAP_ROOT=y {IN} --no-container-remap-root id -un", "ada"),
    Case(f"ENROOT_UNSHARE_NET=y {IN} sh -c 'wc -l < /proc/net/dev'", "3"),
    Case(f"PYXIS_CONTAINER_WORKDIR=/usr {IN} --container-workdir=/etc pwd", "/etc"),
    Case(f"PYXIS_CONTAINER_READONLY=no {IN} sh -c 'echo x > /x; cat /x'", "x"),
    Case(f"PYXIS_CONTAINER_MOUNT_HOME=on {IN} true", err="PYXIS_CONTAINER_MOUNT_HOME: it is 1", status=1),
]

RUNNING = [
    Case(f"{IN} sh -c 'exit 3'", status=3),
    Case(f"{IN} sh -c 'kill -TERM $$'", status=143),
    Case(f"{IN} nosuchcommand", err="nosuchcommand", status=2),
    Case(f"echo typed | {IN} cat", "typed"),
    Case(f"{IN} --input=f --chdir=$PWD cat", "a file"),
    Case(f"{IN} --output=o --error=e sh -c 'echo one; echo two >&2'; cat o e", "one\ntwo"),
    Case(f"printf '0 pwd\\n1 id -un\\n' > m; {IN} -n2 -l --multi-prog m | sort", "0: /work dir\n1: ada"),
    Case(
        f"{IN} --container-entrypoint sh -c 'for a; do echo \"[$a]\"; done' x '' 'a  b' '*'",
        "[]\n[a  b]\n[*]",
    ),
    Case(f"{IN} --container-workdir=usr pwd", "/usr"),
    Case(
        f"{IN} --container-workdir=/etc/os-release true", err="/etc/os-release: Not a directory\n", status=1
    ),
    Case(f"{IN} --container-workdir=/no/where true", err=" /no/where: No such file or directory\n", status=1),
    Case(f"ln -s {IMAGE} l; {STEP} --container-image=./l cat /etc/os-release", TEST_IMAGE),
    Case(f"cd d; {STEP} --container-image=../l cat /etc/os-release", TEST_IMAGE),
    Case(f"{STEP} --container-image=./f true", err="it is no squashfs image", status=1),
    Case(f"{IN} --container-image={IMAGE} --container-readonly --container-readonly true"),
    *(
        Case(f"{STEP} --{option} id -un", "ada", f"pyxis: ignoring --{option.partition('=')[0]} because")
        for option in ("container-save=x", "no-container-entrypoint", "container-readonly")
    ),
]

NAMES_AND_SAVES = [
    Case(f"{STEP} --container-name=table:no_exec true", err='no container "table"', status=1),
    Case(f"{IN} --container-name=table:exec true", err='"exec" was passed', status=1),
    Case(f"enroot create -n pyxis_table {IMAGE} 2>&1 >&- | wc -c > n"),
    Case(f"{STEP} --container-image=/nowhere --container-name=table:no_exec pwd", "/work dir"),
    Case(
        f"{STEP} --container-name=table --container-writable --container-save=s sh -c 'echo k > /k'", err="\n"
    ),
    Case(f"{STEP} --container-image=./s cat /k", "k"),
    Case(
        f"{STEP} --container-image=./s --container-writable --container-save=s sh -c 'echo l > /k'; "
        f"{STEP} --container-image=./s cat /k",
        "l",
        "pyxis: exported container pyxis_",
    ),
    Case(f"{IN} --container-save=nowhere/s id -un", "ada", "failed to export container pyxis_"),
    Case(f"{IN} --container-workdir=/nowhere --container-save=t true; ls t", None, "'t'", 2),
    Case(
        f"{STEP} --container-name=table --container-remap-root sleep 2 & sleep 0.7; "
        f"{STEP} --container-name=table:exec --container-mounts=/tmp:/x true; "
        f"{STEP} --container-name=table:exec --container-workdir=/usr sh -c 'id -u; pwd'; wait",
        "0\n/usr",
        'pyxis: --container-mounts: the container "table" runs already, and does not have this at /x',
    ),
    # Other tests have containers of this user, too.
    Case(f"{STEP} enroot remove -f pyxis_table; enroot list | grep -c table; true", "0"),
    Case("ls -A ~/.local/share/enroot | grep -c -e table -e '^pyxis_[0-9]*\\.[0-9]'; true", "0"),
]


def run_all(containers: Containers, cases: list[Case]) -> list[Done]:
    """Each case is a shell of its own, in an allocation for them all."""
    script = f"{FILES}\n"
    for case in cases:
        script += f"cat > ../table.sh <<'EOC'\n{case.line}\nEOC\nbash ../table.sh < /dev/null > out 2> err\n"
        script += f'echo "{MARK}$?"; cat out; echo "{MARK}"; cat err\n'
    done = containers.script(f"bash <<'EOS'\n{script}rm -rf ~/table ~/table.sh\nEOS", "-n1", "--overcommit")
    parts = done.out.split(MARK)[1:]
    assert len(parts) == 2 * len(cases), done
    pairs = zip(parts[::2], parts[1::2], strict=True)
    return [
        Done(int(status), out, err)
        for status, _, out, err in ((*p[0].partition("\n"), p[1][1:]) for p in pairs)
    ]


def wrong(case: Case, done: Done) -> bool:
    quiet = case.status != 0 or bool(case.err)
    return (
        done.status != case.status
        or (case.out is not None and done.out.rstrip("\n") != case.out)
        or case.err not in done.err
        or (not quiet and done.err != "")
    )


@pytest.mark.parametrize("kind", ["mounts", "environment", "running", "names"])
def test_the_table(containers: Containers, kind: str) -> None:
    here = f"/home/{containers.user}/table"
    kinds = {"environment": ENVIRONMENT, "running": RUNNING, "names": NAMES_AND_SAVES}
    cases = kinds.get(kind) or mount_cases(here)
    results = zip(cases, run_all(containers, cases), strict=True)
    assert [(case, done) for case, done in results if wrong(case, done)] == []


@pytest.mark.every_slurm
def test_what_a_step_says_replaces_what_its_job_said(containers: Containers) -> None:
    """srun gets its job's options as if they stood on its own command line"""
    script = """
        srun pwd; srun --container-workdir=/etc pwd
        srun --container-writable sh -c 'echo written > /x; cat /x'
        srun --container-workdir=/etc --container-workdir=/tmp pwd || echo refused"""
    options = (f"--container-image={IMAGE}", "--container-workdir=/usr", "--container-readonly")
    done = containers.script(script, "-n1", *options)
    assert done.out.split() == ["/usr", "/etc", "written", "refused"]
    assert "--container-workdir is given twice, with different values: /etc and /tmp" in done.err
