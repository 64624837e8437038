# SPDX-License-Identifier: Apache-2.0
"""Makes root filesystems of other Debian releases, in which a benchmark runs programs to compare with."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from cellblock import paths
from cellblock.errors import CellblockError
from cellblock.events import Events

_ENTER = """
cd "$1"
mount --bind . .
cd "$1"
for name in proc sys dev; do mount --rbind "/$name" "$name"; done
# As udev makes it; where there is none, it is root's alone.
if [ -e dev/fuse ]; then
    rm -f fuse
    mknod -m 666 fuse c 10 229
    mount --bind fuse dev/fuse
fi
pivot_root . mnt
echo ready
exec sleep infinity
"""


def debian_root(name: str, suite: str, packages: Sequence[str], users: Sequence[str], events: Events) -> Path:
    """A root of that suite with the packages, made once and kept below CELLBLOCK_CACHE.

    `users` are lines of /etc/passwd. Raises CellblockError when mmdebstrap is missing or fails.
    """
    root = paths.cache() / "bench" / f"{name}-{suite}"
    made, said = root / "etc/cellblock-bench", "\n".join([*packages, *users])
    if made.is_file() and made.read_text() == said:
        return root
    if not shutil.which("mmdebstrap"):
        raise CellblockError("mmdebstrap is not installed", hint="apt-get install mmdebstrap")
    draft = root.with_name(f"{root.name}.{os.getpid()}")
    command = ["mmdebstrap", "--quiet", "--variant=apt", f"--include={','.join(packages)},ca-certificates"]
    # Of sid's lists a mirror that stands still has old ones only.
    command.append('--aptopt=Acquire::Check-Valid-Until "false"')
    root.parent.mkdir(parents=True, exist_ok=True)
    with events.step(name, f"a root of Debian {suite}, made once"):
        done = subprocess.run([*command, suite, str(draft)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise CellblockError(
            f"mmdebstrap of {suite} ended with status {done.returncode}: {done.stderr.strip()[-1000:]}",
            hint=f"correct what it says, remove {draft}, then run the benchmark again",
        )
    # Apptainer binds both into each container.
    (draft / "etc/hosts").write_text("127.0.0.1 localhost\n")
    (draft / "etc/localtime").touch()
    with (draft / "etc/passwd").open("a") as file:
        file.writelines(f"{line}\n" for line in users)
    (draft / made.relative_to(root)).write_text(said)
    if root.exists():
        shutil.rmtree(root)
    draft.rename(root)
    return root


@contextmanager
def entered(root: Path) -> Iterator[tuple[str, ...]]:
    """The command that runs another one in a mount namespace in which `root` is the root.

    Not by chroot(2), which Apptainer refuses. The machine's own root is at /mnt. Raises CellblockError.
    """
    holder = subprocess.Popen(
        ["unshare", "--mount", "--propagation=private", "sh", "-ec", _ENTER, "enter", str(root)],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert holder.stdout
        if holder.stdout.readline().strip() != "ready":
            raise CellblockError(
                f"{root} cannot be entered", hint="remove it: it is made anew by the next run"
            )
        yield ("nsenter", f"--target={holder.pid}", "--mount", "--wdns=/")
    finally:
        holder.kill()
        holder.wait()
