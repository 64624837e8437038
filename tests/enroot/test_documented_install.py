# SPDX-License-Identifier: Apache-2.0
"""What docs/enroot.md tells people to type to install enroot leaves all parts where they are looked for."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.enroot.conftest import SOURCES, Enroot

PROJECT = SOURCES.parent
PAGE = (PROJECT / "docs/enroot.md").read_text()
# /usr and /etc of this machine under a layer that takes what is written.
OVERLAY = """set -eu
mount -t tmpfs none "$1"
for folder in usr etc; do
    mkdir -p "$1/$folder/up" "$1/$folder/work"
    mount -t overlay overlay -o "lowerdir=/$folder,upperdir=$1/$folder/up,workdir=$1/$folder/work" /$folder
done
"""


def documented() -> list[str]:
    """Its `make ... install...` lines, and the one that enables a hook."""
    lines = re.findall(r"^    (make -C enroot\S* install.*?)(?:  +#.*)?$", PAGE, re.MULTILINE)
    (link,) = re.findall(r"`(mkdir -p /etc/enroot/hooks\.d; ln -s [^`]*)`", PAGE)
    return [*lines, link]


def test_what_the_page_says_installs_enroot(
    shared: Enroot, build: Path, importer_build: Path, tmp_path: Path
) -> None:
    if os.geteuid():
        pytest.skip("needs root: it installs to /usr and /etc, under an overlay")
    lines = documented()
    assert len(lines) == 4
    script = OVERLAY
    for line in lines:
        # What is compiled already is not compiled again.
        folder = importer_build if "enroot/importing" in line else build
        script += f"BUILD={shlex.quote(str(folder))}; export BUILD; {line} >&2\n"
    become = f"setpriv --reuid={shared.account} --regid={shared.account} --clear-groups"
    # A container that is held, as pyxis begins it, with the hook that was enabled.
    script += f"""
        enroot digest --help > /dev/null
        set -- {become} env SLURM_JOB_ID=5 enroot
        "$@" start small sh -c 'echo job $SLURM_JOB_ID'
        exec "$@" start --hold "$READY,$LIFE,held" small
    """
    told, ready = os.pipe()
    life, end = os.pipe()
    environment = shared.environment({"READY": str(ready), "LIFE": str(life)})
    environment["PATH"] = "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    del environment["ENROOT_SYSCONF_PATH"]
    with subprocess.Popen(
        ["unshare", "--mount", "bash", "-c", script, "bash", str(tmp_path)],
        cwd=PROJECT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        pass_fds=(ready, life),
    ) as process:
        os.close(ready)
        os.close(life)
        held = os.read(told, 1)
        os.close(end)
        out, err = process.communicate(timeout=60)
    os.close(told)
    assert (out, held) == ("job 5\n", b"\0"), err
