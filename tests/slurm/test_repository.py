# SPDX-License-Identifier: Apache-2.0
"""A small Slurm compiled and packaged by the real scripts, in an overlay over this machine's root."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from cellblock.build.mirrors import archive
from cellblock.build.working_root import WorkingRoot
from cellblock.errors import CellblockError, DefinitionError
from cellblock.events import Event, Events, StepStarted
from cellblock.lock.apt_root import AptRoot
from cellblock.lock.archives import archives_of
from cellblock.machine.host import host_release
from cellblock.paths import PROJECT
from cellblock.process import Programs
from cellblock.slurm import SlurmRepository
from cellblock.variants import SlurmSource, Variant, load_variants

from .small_slurm import small_slurm

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="mounting an overlay needs root"),
    pytest.mark.skipif(
        not (shutil.which("gcc") and shutil.which("dpkg-shlibdeps")),
        reason="gcc or dpkg-dev is not installed: `python3 build.py test` installs them",
    ),
]
VARIANTS = load_variants(PROJECT / "images" / "variants.yaml")
DEBIAN = VARIANTS["debian13"]


class HostToolchain:
    """This machine as the toolchain: what it compiles with is what it has."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.workshops = 0

    def key(self, packages: Sequence[str]) -> str:
        return f"host {sorted(packages)}"

    @contextmanager
    def workshop(self, packages: Sequence[str], on_line: Callable[[str], None]) -> Iterator[WorkingRoot]:
        self.workshops += 1
        yield WorkingRoot(self._folder / str(self.workshops), [Path("/")], Programs())


@pytest.fixture(scope="module")
def toolchain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostToolchain]:
    folder = tmp_path_factory.mktemp("overlay")
    # Another filesystem than this machine's root, of which an upper layer may not be a part.
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(folder)], check=True)
    yield HostToolchain(folder)
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture(scope="module")
def repository(
    tmp_path_factory: pytest.TempPathFactory, toolchain: HostToolchain
) -> Callable[..., SlurmRepository]:
    """Declares a variant of a small Slurm; keywords are those of the tarball and of the variant's `slurm`."""
    folder = tmp_path_factory.mktemp("slurm")

    def declare(
        *, absent: tuple[str, ...] = (), fails: bool = False, cuda: bool = False, **fields: object
    ) -> SlurmRepository:
        path = folder / "slurm.tar"
        values = {"source": str(path), "sha256": small_slurm(path, absent=absent, fails=fails)}
        source = SlurmSource.model_validate({**values, "release": "25.05", **fields})
        variant = Variant(
            "mine",
            DEBIAN.distribution,
            VARIANTS["debian13-cuda"].cuda if cuda else None,
            None,
            DEBIAN.arch,
            slurm_source=source,
        )
        return SlurmRepository(variant, source, toolchain, folder / "cache")

    return declare


@pytest.fixture(scope="module")
def made(repository: Callable[..., SlurmRepository]) -> SlurmRepository:
    """The archive of a small Slurm with all there is."""
    made = repository()
    made.ensure(Events())
    return made


def fields_of(deb: Path) -> dict[str, str]:
    text = subprocess.run(["dpkg-deb", "-f", deb], capture_output=True, text=True, check=True).stdout
    return dict(line.split(": ", 1) for line in text.splitlines() if not line.startswith(" "))


def files_of(deb: Path) -> list[str]:
    listed = subprocess.run(["dpkg-deb", "-c", deb], capture_output=True, text=True, check=True).stdout
    paths = [line.split(maxsplit=5)[5].split(" -> ")[0] for line in listed.splitlines()]
    return [path[1:] for path in paths if not path.endswith("/") and "/usr/share/doc" not in path]


def test_packages_have_the_distributions_names_and_split_the_files(made: SlurmRepository) -> None:
    debs = {deb.name.split("_")[0]: deb for deb in made.archive.path.glob("*.deb")}
    lib = f"/usr/lib/{DEBIAN.arch.gnu}"
    assert files_of(debs["slurmctld"]) == ["/usr/sbin/slurmctld"]
    assert files_of(debs["slurmd"]) == ["/usr/sbin/slurmd", "/usr/sbin/slurmstepd"]
    assert files_of(debs["slurmrestd"]) == [f"{lib}/slurm/openapi_slurmctld.so", "/usr/sbin/slurmrestd"]
    assert files_of(debs["slurm-wlm-jwt-plugin"]) == [f"{lib}/slurm/auth_jwt.so"]
    assert files_of(debs["libpam-slurm-adopt"]) == [f"{lib}/security/pam_slurm_adopt.so"]
    assert files_of(debs["libslurm-dev"]) == ["/usr/include/slurm/slurm.h", f"{lib}/libslurm.so"]
    assert set(files_of(debs["slurm-client"])) == {
        "/usr/bin/sinfo",
        "/usr/bin/srun",
        "/usr/share/bash-completion/completions/sinfo",
        "/usr/share/bash-completion/completions/srun",
    }
    # What no rule knows is there all the same.
    assert f"{lib}/slurm/new_kind.so" in files_of(debs["slurm-wlm-basic-plugins"])
    assert f"{lib}/libslurm.so.42" in files_of(debs["slurm-wlm-basic-plugins"])
    # This Slurm has none, so there is no package without a file.
    assert "slurm-wlm-mysql-plugin" not in debs
    fields = fields_of(debs["slurmd"])
    assert fields["Version"] == "1:25.05.3-1cellblock"
    assert "libc6 (>=" in fields["Depends"]
    assert "slurm-wlm-basic-plugins (= 1:25.05.3-1cellblock), munge" in fields["Depends"]
    assert fields_of(debs["slurm-wlm-basic-plugins"])["Provides"] == "libslurm42 (= 1:25.05.3-1cellblock)"


@pytest.mark.skipif(host_release().get("ID") != "debian", reason="asks this machine's own mirror of Debian")
def test_apt_takes_them_rather_than_the_distributions(made: SlurmRepository, tmp_path: Path) -> None:
    lines = (*archive(DEBIAN).lines[:1], made.archive.line)
    apt = AptRoot(tmp_path / "apt", "debian", DEBIAN.arch.debian, archives_of(lines))
    apt.update()
    chosen = {
        choice.name: choice.version for choice in apt.would_install([], "install", "slurmd", "slurm-client")
    }
    ours = {"slurmd", "slurm-client", "slurm-wlm-basic-plugins"}
    assert {name for name, version in chosen.items() if version == "1:25.05.3-1cellblock"} == ours
    assert "munge" in chosen


def test_the_same_is_compiled_once(
    made: SlurmRepository, repository: Callable[..., SlurmRepository], toolchain: HostToolchain
) -> None:
    before = toolchain.workshops
    assert repository().ensure(Events()) == made.archive.path
    assert toolchain.workshops == before


def test_two_compilations_give_the_same_bytes(made: SlurmRepository) -> None:
    debs = {deb.name: deb.read_bytes() for deb in made.archive.path.glob("*.deb")}
    shutil.rmtree(made.archive.path)
    assert {deb.name: deb.read_bytes() for deb in made.ensure(Events()).glob("*.deb")} == debs


def test_configure_is_told_what_to_leave_out(
    made: SlurmRepository, repository: Callable[..., SlurmRepository]
) -> None:
    less = repository(without=["lua", "jwt"], absent=("LUA", "JWT"))
    assert less.ensure(Events()) != made.archive.path
    assert {"liblua5.4-dev", "libjson-c-dev"} & set(less.packages) == {"libjson-c-dev"}
    assert "--without-lua" in less.arguments


def test_what_was_asked_for_and_is_absent_is_named_before_anything_is_compiled(
    repository: Callable[..., SlurmRepository],
) -> None:
    steps: list[str] = []
    events = Events()

    def note(event: Event) -> None:
        if isinstance(event, StepStarted):
            steps.append(event.step)

    events.subscribe(note)
    made = repository(absent=("PMIX", "LUA"))
    with pytest.raises(CellblockError, match="configure did not find pmix, lua") as raised:
        made.ensure(events)
    assert "`without: [pmix, lua]` leaves it out" in raised.value.hint
    assert steps[-1] == "configure"
    assert not made.archive.path.exists()


def test_a_variant_with_cuda_has_nvml_or_is_refused(repository: Callable[..., SlurmRepository]) -> None:
    assert "libnvidia-ml-dev" in repository(cuda=True).packages
    assert "libnvidia-ml-dev" not in repository().packages
    with pytest.raises(CellblockError, match="configure did not find nvml"):
        repository(cuda=True, absent=("NVML",)).ensure(Events())


def test_a_failing_configure_is_shown_with_its_words_and_the_log(
    repository: Callable[..., SlurmRepository],
) -> None:
    made = repository(fails=True)
    with pytest.raises(CellblockError, match="step 'configure' failed") as raised:
        made.ensure(Events())
    assert "| configure: error: no acceptable C compiler found" in raised.value.message
    assert str(made.log) in raised.value.hint
    assert "no acceptable C compiler" in made.log.read_text()
    assert not made.archive.path.exists()


def test_another_release_is_refused_before_a_toolchain_is_made(
    repository: Callable[..., SlurmRepository], toolchain: HostToolchain
) -> None:
    before = toolchain.workshops
    with pytest.raises(DefinitionError, match=r"variant mine: slurm: `release` is 24\.05"):
        repository(release="24.05").ensure(Events())
    assert toolchain.workshops == before
