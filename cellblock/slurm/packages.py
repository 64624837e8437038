# SPDX-License-Identifier: Apache-2.0
"""Decides which file of an installed Slurm belongs to which package.

Packages have the names of Debian's and Ubuntu's, so that definitions need not differ. A file that no rule
names goes to the package of the plugins, which all others depend on: a new release's new file is not lost.
"""

from __future__ import annotations

from dataclasses import dataclass

from cellblock.slurm.tarball import Release

BASIC = "slurm-wlm-basic-plugins"
"""The package that holds what no other takes."""

VERSION = "1:{version}-1cellblock"
"""With an epoch: whatever the distribution's version is, this one is newer, for apt in the jail as well."""


@dataclass(frozen=True)
class Package:
    """One package: `files` are patterns of sh(1) below the root, folders as a whole."""

    name: str
    summary: str
    files: tuple[str, ...]
    depends: tuple[str, ...] = (BASIC,)


# The first that takes a file has it. {lib} is the folder of libraries, {plugins} that of plugins.
PACKAGES = (
    Package("slurmctld", "Slurm central management daemon", ("usr/sbin/slurmctld",), (BASIC, "munge")),
    Package(
        "slurmd",
        "Slurm compute node daemon",
        ("usr/sbin/slurmd", "usr/sbin/slurmstepd", "usr/libexec/slurm/slurmstepd"),
        (BASIC, "munge"),
    ),
    Package(
        "slurmdbd",
        "Slurm accounting database daemon",
        ("usr/sbin/slurmdbd",),
        (BASIC, "slurm-wlm-mysql-plugin", "munge"),
    ),
    Package(
        "slurmrestd",
        "Slurm REST daemon",
        ("usr/sbin/slurmrestd", "{plugins}/openapi_*.so", "{plugins}/rest_auth_*.so"),
    ),
    Package("sackd", "Slurm authentication and configuration daemon", ("usr/sbin/sackd",)),
    Package(
        "slurm-wlm-mysql-plugin",
        "Slurm accounting in MySQL",
        ("{plugins}/accounting_storage_mysql.so", "{plugins}/jobcomp_mysql.so"),
    ),
    Package("slurm-wlm-jwt-plugin", "Slurm authentication by JSON web token", ("{plugins}/auth_jwt.so",)),
    Package(
        "libpam-slurm-adopt",
        "PAM module that adopts sessions into jobs",
        ("{lib}/security/pam_slurm_adopt.so",),
    ),
    Package(
        "libslurm-dev",
        "Slurm headers",
        ("usr/include/slurm", "{lib}/libslurm.so"),
    ),
    Package(
        "slurm-client",
        "Slurm client commands",
        ("usr/bin/*", "usr/share/bash-completion"),
        (BASIC, "munge"),
    ),
    Package(BASIC, "Slurm library and plugins", ("*",), ()),
)


def version(release: Release) -> str:
    """The version of all packages; a candidate is older than its release (deb-version(7))."""
    return VERSION.format(version=release.version.replace("-0rc", "~rc"))


def stanza(package: Package, release: Release, architecture: str) -> str:
    """The fields of deb-control(5) that do not depend on what was compiled; {shlibs} stands for the rest."""
    own = version(release)
    depends = ", ".join(["@shlibs@", *(_exactly(name, own) for name in package.depends)])
    fields = {
        "Package": package.name,
        "Version": own,
        "Architecture": architecture,
        "Maintainer": "Cellblock <root@localhost>",
        "Section": "admin",
        "Priority": "optional",
        "Installed-Size": "@size@",
        "Depends": depends,
    }
    if package.name == BASIC:
        # The library has the distribution's path: what asks for the distribution's package gets this one.
        library = f"libslurm{release.library}"
        fields["Provides"] = f"{library} (= {own})"
        fields["Conflicts"] = fields["Replaces"] = library
    fields["Description"] = f"{package.summary}\n Compiled from Slurm {release.version} by Cellblock."
    return "".join(f"{name}: {value}\n" for name, value in fields.items())


def _exactly(name: str, own: str) -> str:
    ours = {package.name for package in PACKAGES}
    return f"{name} (= {own})" if name in ours else name
