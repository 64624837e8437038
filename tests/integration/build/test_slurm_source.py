# SPDX-License-Identifier: Apache-2.0
"""Slurm compiled from the tarball that Debian's own source package carries, as a variant would have it.

Without optimisation, which would double its minutes, and otherwise with all there is. It stays in the cache
for the next run, which compiles again when the repository's key says so (the tarball, the options, the
scripts, each package of the toolchain) or when the code has changed that compiles: not with each change of a
build, for it takes both cores for two to four minutes.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
from pathlib import Path

import pytest

from cellblock import paths
from cellblock.build.mirrors import archive
from cellblock.build.toolchain import LockedToolchain
from cellblock.build.working_root import WorkingRoot
from cellblock.cache_key import digest_of, digest_of_tree
from cellblock.events import Events
from cellblock.files.sha256 import sha256_of_file
from cellblock.machine.host import host_release
from cellblock.paths import PROJECT
from cellblock.process import Programs
from cellblock.slurm import SlurmRepository
from cellblock.variants import SlurmSource, Variant, load_variants
from tests.c_compiling import kept_folder
from tests.integration.archive import private_apt

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(os.geteuid() != 0, reason="making roots needs root"),
    pytest.mark.skipif(
        host_release().get("ID") != "debian", reason="the tarball is fetched from this machine's own mirror"
    ),
]
DEBIAN = load_variants(PROJECT / "images" / "variants.yaml")["debian13"]


@pytest.fixture(scope="module")
def tarball(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The upstream tarball of slurm-wlm in Debian 13."""
    folder = tmp_path_factory.mktemp("source")
    # The suite itself: of its security updates a mirror may have the packages and not the sources.
    lines = [line.replace("deb ", "deb-src ", 1) for line in archive(DEBIAN).lines[:1]]
    get = private_apt(folder / "apt", lines)
    subprocess.run([*get, "update"], check=True, capture_output=True)
    # Its other files may be gone from a mirror that was updated meanwhile; the tarball is all that is needed.
    command = [*get, "source", "--download-only", "--tar-only", "slurm-wlm"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    found = list(folder.glob("slurm-wlm_*.orig.tar.*"))
    if not found:
        pytest.skip(f"this machine's mirror does not have the tarball of slurm-wlm: {done.stderr.strip()}")
    return found[0]


@pytest.fixture(scope="module")
def variant(tarball: Path) -> Variant:
    sha256 = hashlib.sha256(tarball.read_bytes()).hexdigest()
    source = SlurmSource(source=str(tarball), sha256=sha256, release=DEBIAN.slurm.release)
    return Variant("test-source", DEBIAN.distribution, None, None, DEBIAN.arch, slurm_source=source)


def compiling_sources() -> set[Path]:
    """What of cellblock/build is imported or run by a toolchain."""
    folder = PROJECT / "cellblock" / "build"
    found, names = {folder / "in_root.sh"}, {"toolchain"}
    while names:
        source = folder / f"{names.pop()}.py"
        found.add(source)
        imported = re.findall(r"^from cellblock\.build\.(\w+) import", source.read_text(), re.MULTILINE)
        names |= {name for name in imported if folder / f"{name}.py" not in found}
    return found


@pytest.fixture(scope="module")
def repository(variant: Variant) -> SlurmRepository:
    code = [digest_of_tree(PROJECT / "cellblock/slurm"), *map(sha256_of_file, sorted(compiling_sources()))]
    folder = kept_folder("compiled-slurm", digest_of(code)[:24])
    toolchain = LockedToolchain(variant, archive(variant), paths.cache(), Events())
    assert variant.slurm_source
    cflags = "-O0 -U_FORTIFY_SOURCE"
    made = SlurmRepository(variant, variant.slurm_source, toolchain, folder, cflags=cflags)
    made.ensure(Events())
    return made


@pytest.fixture(scope="module")
def installed(repository: SlurmRepository, tmp_path_factory: pytest.TempPathFactory) -> WorkingRoot:
    """A root in which apt installed what images ask for."""
    folder = tmp_path_factory.mktemp("root")
    tree = folder / "tree"
    names = "slurmctld slurmd slurmdbd slurmrestd slurm-client libpam-slurm-adopt libslurm-dev"
    argv = ["mmdebstrap", "--mode=root", "--variant=apt", "--dpkgopt=force-unsafe-io"]
    argv += ["--dpkgopt=path-exclude=/usr/share/man/*", f"--include={names.replace(' ', ',')}"]
    lines = (*archive(DEBIAN).lines, repository.archive.line.replace("file://", "copy:"))
    subprocess.run([*argv, DEBIAN.distribution.codename, str(tree), *lines], check=True, capture_output=True)
    return WorkingRoot(folder / "work", [tree], Programs())


def test_every_feature_is_compiled_and_packaged(repository: SlurmRepository) -> None:
    contents = {
        deb.name.split("_")[0]: subprocess.run(
            ["dpkg-deb", "-c", deb], check=True, capture_output=True, text=True
        ).stdout
        for deb in repository.archive.path.glob("*.deb")
    }
    plugins = contents["slurm-wlm-basic-plugins"]
    for name in (
        "mpi_pmix",
        "auth_munge",
        "serializer_json",
        "serializer_yaml",
        "job_submit_lua",
        "jobcomp_lua",
        "cgroup_v2",
    ):
        assert f"/slurm/{name}.so" in plugins, name
    assert "/slurm/auth_jwt.so" in contents["slurm-wlm-jwt-plugin"]
    assert "/slurm/accounting_storage_mysql.so" in contents["slurm-wlm-mysql-plugin"]
    assert "/usr/sbin/slurmrestd" in contents["slurmrestd"]
    assert "/security/pam_slurm_adopt.so" in contents["libpam-slurm-adopt"]


def test_apt_installs_them_and_the_programs_start(installed: WorkingRoot, variant: Variant) -> None:
    # Clients want a configuration before they say their version.
    conf = "ClusterName=test\\nSlurmctldHost=localhost\\n"
    installed.run([f"mkdir -p /etc/slurm; printf '{conf}' > /etc/slurm/slurm.conf"])
    for program in ("slurmctld -V", "slurmd -V", "slurmrestd -V", "srun -V", "sinfo -V"):
        assert f"slurm {variant.slurm.release}." in installed.run([program]).output, program
    versions = installed.run(["dpkg-query -W -f '${Package} ${Version}\\n' | grep -i slurm"]).output
    assert all(" 1:" in line for line in versions.splitlines()), versions


def test_the_libraries_that_plugins_load_are_installed_with_them(
    installed: WorkingRoot, variant: Variant
) -> None:
    folder = variant.slurm.plugin_dir
    missing = installed.run(
        [f"LD_LIBRARY_PATH={folder} ldd {folder}/*.so /usr/sbin/slurm* | grep 'not found' || :"]
    ).output
    assert missing == ""
    # Opened by name, so that ldd does not tell.
    installed.run([f"test -e /usr/lib/{variant.arch.gnu}/pmix2/lib/libpmix.so.2"])
