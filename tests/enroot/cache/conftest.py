# SPDX-License-Identifier: Apache-2.0
"""Fixtures for tests of the image cache: a program that imitates imports, and two users without trust."""

from __future__ import annotations

import hashlib
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.c_compiling import compiled

SOURCES = Path(__file__).parents[3] / "enroot" / "importing"
# Of each worker of pytest: the first to end removes its own.
_WORKER = os.environ.get("PYTEST_XDIST_WORKER", "")
ACCOUNTS = (f"cellblock-test-a{_WORKER}", f"cellblock-test-b{_WORKER}")


@dataclass(frozen=True)
class User:
    """Runs the producer (enroot/importing/tests/producer.c) as an account, with a cache below `base`."""

    program: Path
    base: Path
    account: str | None = None
    """None: whoever runs the tests."""
    shared: Path | None = None
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def home(self) -> Path:
        return self.base / (self.account or "self")

    @property
    def store(self) -> Path:
        return self.home / ".cache/enroot"

    @property
    def uid(self) -> int:
        return pwd.getpwnam(self.account).pw_uid if self.account else os.geteuid()

    @property
    def shared_store(self) -> Path:
        assert self.shared
        return self.shared / "users" / str(self.uid)

    @property
    def log(self) -> Path:
        """A line for each thing that was really made."""
        return self.base / "made.log"

    def made(self) -> list[str]:
        return self.log.read_text().split() if self.log.exists() else []

    def environment(self, extra: Mapping[str, str] | None = None) -> dict[str, str]:
        return {
            "PATH": "/usr/bin:/bin",
            "HOME": str(self.home),
            "ENROOT_SYSCONF_PATH": str(self.base / "etc"),
            "PRODUCER_LOG": str(self.log),
            **({"ENROOT_SHARED_CACHE_PATH": str(self.shared)} if self.shared else {}),
            **self.settings,
            **(extra or {}),
        }

    def command(self, *words: str | Path) -> list[str]:
        become = (
            ["setpriv", f"--reuid={self.account}", f"--regid={self.account}", "--clear-groups"]
            if self.account
            else []
        )
        return [*become, str(self.program), *map(str, words)]

    def popen(self, *words: str | Path, env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.command(*words),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.environment(env),
            cwd=self.home,
        )

    def __call__(
        self, *words: str | Path, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*words),
            capture_output=True,
            text=True,
            env=self.environment(env),
            cwd=self.home,
            timeout=120,
            stdin=subprocess.DEVNULL,
        )

    def image(
        self, name: str, output: str = "-", kib: int = 256, env: Mapping[str, str] | None = None
    ) -> str:
        """found, made or unusable."""
        done = self("image", name, str(kib), "0", output, env=env)
        assert done.returncode == 0, done.stderr
        return done.stdout.split()[0]

    def blob(self, name: str, *more: str) -> subprocess.CompletedProcess[str]:
        return self("blob", name, "256", "0", *more)

    def entry(self, name: str, kib: int = 256) -> Path:
        """The folder of an image in the cache, made when it is missing."""
        done = self("image", name, str(kib), "0", "-")
        assert done.returncode == 0, done.stderr
        return Path(done.stdout.split()[1]).parent

    def run(self, *words: str | Path) -> None:
        """A program other than the producer, as this user."""
        done = subprocess.run(
            [*self.command()[:-1], *map(str, words)], capture_output=True, text=True, cwd=self.home
        )
        assert done.returncode == 0, done.stderr


@pytest.fixture(scope="session")
def producer() -> Path:
    return compiled(SOURCES, "producer") / "producer"


@pytest.fixture(scope="session")
def accounts() -> Iterator[tuple[str, str]]:
    if os.geteuid():
        pytest.skip("two users take root to make them")
    for name in ACCOUNTS:
        subprocess.run(["useradd", "--no-create-home", name], check=False, stderr=subprocess.DEVNULL)
    yield ACCOUNTS
    for name in ACCOUNTS:
        subprocess.run(["userdel", name], check=False, stderr=subprocess.DEVNULL)


def make_user(producer: Path, base: Path, account: str | None, shared: Path | None) -> User:
    program = base / "producer"
    if not program.exists():
        shutil.copy(producer, program)
        (base / "etc").mkdir()
        (base / "made.log").touch()
        (base / "made.log").chmod(0o666)
    user = User(program, base, account, shared)
    user.home.mkdir()
    if account:
        shutil.chown(user.home, account, account)
    return user


@pytest.fixture
def base() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="cellblock-test-", dir="/var/tmp"))  # pytest's own are root's alone
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def user(producer: Path, base: Path) -> User:
    """Whoever runs the tests, without an administrator's directory."""
    return make_user(producer, base, None, None)


@dataclass(frozen=True)
class Node:
    """An administrator's directory, root, and two users of it."""

    root: User
    a: User
    b: User

    @property
    def shared(self) -> Path:
        assert self.a.shared
        return self.a.shared


@pytest.fixture
def node(producer: Path, base: Path, accounts: tuple[str, str]) -> Node:
    shared = base / "shared"
    root = make_user(producer, base, None, shared)
    done = root("cache", "init")
    assert done.returncode == 0, done.stderr
    return Node(root, *(make_user(producer, base, name, shared) for name in accounts))


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
