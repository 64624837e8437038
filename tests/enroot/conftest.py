# SPDX-License-Identifier: Apache-2.0
"""Fixtures for tests of enroot: the program compiled, a user, and a small root of this machine's programs."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import subprocess
import tempfile
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import c_compiling

SOURCES = Path(__file__).parents[2] / "enroot"
PROGRAMS = (
    "bash",
    "cat",
    "chown",
    "env",
    "false",
    "grep",
    "id",
    "ls",
    "mkdir",
    "mv",
    "rm",
    "sleep",
    "stat",
    "true",
)
# Of each worker of pytest: the first to end removes its own.
ACCOUNT = "cellblock-test" + os.environ.get("PYTEST_XDIST_WORKER", "")

RC = """\
# enroot-provenance: test
mkdir -p "${WORKDIR:-/}" && cd "${WORKDIR:-/}" || exit 1
if [ -s /etc/rc.local ]; then . /etc/rc.local; fi
if [ $# -gt 0 ]; then exec "$@"; else echo "no command"; fi
"""


@dataclass(frozen=True)
class Enroot:
    """Runs enroot as a user, with folders of its own; what it needs of /etc/enroot is in `sysconf`."""

    program: Path
    base: Path
    account: str | None
    """Whom it runs as, where the tests run as root."""

    @property
    def home(self) -> Path:
        return self.base / "home"

    @property
    def data(self) -> Path:
        return self.home / ".local/share/enroot"

    @property
    def sysconf(self) -> Path:
        return self.base / "etc"

    @property
    def config(self) -> Path:
        return self.home / ".config/enroot"

    def environment(self, extra: Mapping[str, str] | None = None) -> dict[str, str]:
        return {
            "PATH": "/usr/bin:/bin",
            "HOME": str(self.home),
            "XDG_RUNTIME_DIR": str(self.base / "run"),
            "ENROOT_SYSCONF_PATH": str(self.sysconf),
            **(extra or {}),
        }

    def command(self, *words: str | Path) -> list[str]:
        """`words` as the user, with a /dev/fuse that users may open, as udev makes it."""
        if self.account is None:
            return [str(word) for word in words]
        become = ["setpriv", f"--reuid={self.account}", f"--regid={self.account}", "--clear-groups"]
        fuse = 'if [ -e "$0" ]; then mount --bind "$0" /dev/fuse; fi; exec "$@"'
        return ["unshare", "--mount", "sh", "-c", fuse, str(self.base / "fuse"), *become, *map(str, words)]

    def __call__(
        self,
        *words: str | Path,
        env: Mapping[str, str] | None = None,
        stdin: str = "",
        prefix: tuple[str, ...] = (),
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*prefix, self.program, *words),
            input=stdin,
            capture_output=True,
            text=True,
            env=self.environment(env),
            cwd=self.home,
            timeout=60,
        )

    def popen(self, *words: str | Path) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.command(self.program, *words),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.environment(),
            cwd=self.home,
        )

    def out(self, *words: str | Path, env: Mapping[str, str] | None = None) -> str:
        """Its standard output; it must succeed."""
        done = self(*words, env=env)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def sh(self, script: str, *options: str, env: Mapping[str, str] | None = None) -> str:
        """What a shell script prints in the container `small`."""
        return self.out("start", *options, "small", "sh", "-c", textwrap.dedent(script), env=env)

    def write(self, path: Path, text: str, mode: int = 0o644) -> Path:
        """A file of the user's, gone with the fixture's folders."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
        path.chmod(mode)
        if self.account is not None:
            for each in (path, *path.parents):
                if self.base in each.parents:
                    shutil.chown(each, self.account, self.account)
        return path


def make(build: Path, *targets: str) -> subprocess.CompletedProcess[str]:
    return c_compiling.make(SOURCES, build, *targets)


@pytest.fixture(scope="session")
def build() -> Path:
    return c_compiling.compiled(SOURCES)


@pytest.fixture(scope="session")
def importer_build() -> Path:
    """Where enroot-image is, which does what import, load, digest and cache say."""
    return c_compiling.compiled(SOURCES / "importing")


@pytest.fixture(scope="session")
def account() -> Iterator[str | None]:
    """A user of this machine, made for the tests; None: whoever runs them."""
    if os.geteuid():
        yield None
        return
    try:
        pwd.getpwnam(ACCOUNT)
    except KeyError:
        subprocess.run(["useradd", "--no-create-home", "--shell", "/bin/bash", ACCOUNT], check=True)
    yield ACCOUNT
    subprocess.run(["userdel", ACCOUNT], check=False, stderr=subprocess.DEVNULL)


def small_tree(root: Path) -> None:
    """A few of this machine's programs and what they need."""
    for folder in ("bin", "dev", "etc", "proc", "root", "sys", "tmp", "usr/lib", "var/lib", "run", "mnt"):
        (root / folder).mkdir(parents=True)
    (root / "var/run").symlink_to("/run")
    (root / "var/lock").symlink_to("/run/lock")
    for name in PROGRAMS:
        found = shutil.which(name)
        assert found, f"{name} is not installed"
        shutil.copy(found, root / "bin")
        listed = subprocess.run(["ldd", found], capture_output=True, text=True, check=True).stdout
        for library in re.findall(r"(/\S+) \(0x", listed):
            target = root / library.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(library, target)
    (root / "bin/sh").symlink_to("bash")
    (root / "etc/passwd").write_text("daemon:x:1:1::/:/bin/false\nroot:x:0:0:root:/root:/bin/sh\n")
    (root / "etc/group").write_text("daemon:x:1:\n")
    (root / "etc/environment").write_text("IMAGE=from the image\nBOTH=image\n")
    (root / "etc/rc").write_text(RC)
    (root / "etc/rc").chmod(0o755)


@pytest.fixture(scope="session")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tree as a squashfs file."""
    if not shutil.which("mksquashfs"):
        pytest.skip("mksquashfs (squashfs-tools) is not installed: `python3 build.py test` installs it")
    folder = tmp_path_factory.mktemp("image")
    small_tree(folder / "root")
    path = folder / "small.sqsh"
    options = [
        "-all-root",
        "-noappend",
        "-quiet",
        "-no-progress",
        "-comp",
        "zstd",
        "-Xcompression-level",
        "1",
    ]
    subprocess.run(["mksquashfs", folder / "root", path, *options], check=True, stdout=subprocess.DEVNULL)
    return path


def fresh(build: Path, account: str | None, image: Path) -> Iterator[Enroot]:
    base = Path(tempfile.mkdtemp(prefix="cellblock-test-", dir="/var/tmp"))  # pytest's own are root's alone
    base.chmod(0o755)
    enroot = Enroot(base / "enroot", base, account)
    shutil.copy(build / "enroot", enroot.program)
    for folder in ("home", "run", "etc"):
        (base / folder).mkdir()
        if account is not None:
            shutil.chown(base / folder, account, account)
    if account is not None and Path("/dev/fuse").exists():
        os.mknod(base / "fuse", 0o020666, Path("/dev/fuse").stat().st_rdev)
        (base / "fuse").chmod(0o666)
    shutil.copy(image, base / "home/small.sqsh")
    (base / "home/small.sqsh").chmod(0o644)
    tried = enroot("create", "small.sqsh")
    assert tried.returncode == 0, tried.stderr
    tried = enroot("start", "small", "true")
    try:
        if tried.returncode and "user namespaces" in tried.stderr:
            pytest.skip(tried.stderr)
        assert tried.returncode == 0, tried.stderr
        yield enroot
    finally:
        assert str(base) not in Path("/proc/self/mountinfo").read_text()
        shutil.rmtree(base)


@pytest.fixture(scope="module")
def shared(build: Path, account: str | None, image: Path) -> Iterator[Enroot]:
    """With a container `small`, for tests that leave it as it is."""
    yield from fresh(build, account, image)


@pytest.fixture
def enroot(build: Path, account: str | None, image: Path) -> Iterator[Enroot]:
    """The same for one test alone."""
    yield from fresh(build, account, image)


def servers(enroot: Enroot) -> list[str]:
    """Command lines of FUSE servers for images of this fixture."""
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                line = (process / "cmdline").read_bytes().decode(errors="replace")
            except OSError:
                continue
            if line.startswith(("squashfuse", "fuse-overlayfs")) and str(enroot.base) in line:
                found.append(line)
    return found
