# SPDX-License-Identifier: Apache-2.0
"""Lists the system packages that Cellblock needs and why, and finds which of them apt offers here.

Read by the launcher before anything is installed (so: standard library only, and nothing of Cellblock
that needs more) and by `build.py doctor`. Package names differ between Debian 12 to 14 and Ubuntu 22.04
to 26.04, so a need lists alternatives and the choice follows what apt offers, never a release's name.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Collection, Iterable
from dataclasses import dataclass

Group = str
"""A key of `NEEDS`: python (the environment itself), compile (its compiled parts), core (build and up), unit
(tests that need nothing but Python), docs (the documentation as a site), test (all other tests), kubernetes
(those on a real Kubernetes)."""


@dataclass(frozen=True)
class Need:
    """One thing the system must provide, by the first of `alternatives` that apt offers.

    An alternative is a set of packages that only serve together. An `optional` need is left out where
    apt offers none of them.
    """

    why: str
    alternatives: tuple[tuple[str, ...], ...]
    optional: bool = False

    def is_met(self, installed: Collection[str]) -> bool:
        """Whether one of the alternatives is there, whole."""
        return any(all(package in installed for package in choice) for choice in self.alternatives)


def _one(package: str, why: str, *, optional: bool = False) -> Need:
    return Need(why, ((package,),), optional)


NEEDS: dict[Group, tuple[Need, ...]] = {
    # What the virtual environment itself takes depends on the interpreter: see below.
    "python": (),
    # What its compiled parts take; the headers of Python depend on the interpreter, too.
    "compile": (
        _one("gcc", "compiles the jail's mount core for Python"),
        _one("libc6-dev", "has the headers for that compiler"),
        _one("libssl-dev", "hashes layers and files for the image core"),
        _one("libzstd-dev", "decompresses layers for the image core"),
        # Twice as fast as zlib, and in every release; zlib's headers are there for what has no ISA-L.
        Need("decompresses gzip layers for the image core", (("libisal-dev",), ("zlib1g-dev",))),
        _one("libyaml-dev", "reads the descriptions of GPUs (CDI) for the mount core; headers and library"),
    ),
    # What `build` and `up` run.
    "core": (
        _one("buildah", "makes and commits images without a daemon"),
        _one("podman", "runs the local cluster; shares buildah's storage"),
        _one("runc", "starts the containers"),
        _one("mmdebstrap", "bootstraps base images from the distribution's archive"),
        _one("arch-test", "tells mmdebstrap which architectures this machine can run"),
        _one("skopeo", "copies images between registries, layouts and engines"),
        _one("iptables", "sets the network rules of the cluster"),
        _one("gpg", "compares the fingerprint of an archive's key"),
        _one("zstd", "compresses and reads image layers"),
        _one("restic", "stores backups of the jail"),
        _one("openssh-client", "makes the SSH keys of a cluster, and logs in to it"),
        _one("debian-archive-keyring", "verifies Debian's archive when building its images", optional=True),
        _one("ubuntu-keyring", "verifies Ubuntu's archive when building its images", optional=True),
    ),
    # What tests of Python alone need: packages of Python, named in pyproject.toml; docs likewise.
    "unit": (),
    "docs": (),
    # What only the other tests run.
    "test": (
        _one("shellcheck", "checks shell scripts"),
        _one("prometheus", "scrapes the exporter of a cluster, and tries the rules"),
        _one("bash-completion", "completes commands in bash"),
        _one("zsh", "is a shell that commands are completed in"),
        _one("fish", "is another"),
        _one("catatonit", "holds the pods that podman plays"),
        _one("docker-registry", "is the registry that tests push to and pull from"),
        _one("cppcheck", "checks the C sources"),
        _one("libpam0g-dev", "has the headers to compile the PAM module that a test loads"),
        _one("mount", "mounts the small filesystems that tests fill up"),
        _one("libfuse3-dev", "compiles the slow filesystem that a jail is assembled on"),
        _one("fuse3", "mounts it"),
        _one("xfsprogs", "makes the xfs that a jail is assembled on"),
        _one("btrfs-progs", "makes the btrfs that a jail is assembled on"),
        # Ubuntu's is a snap, which no container can install: there the tests of the report's page skip.
        Need("opens the report's page", (("chromium-headless-shell",), ("chromium",)), optional=True),
        _one("openssl", "checks signatures and makes certificates that nothing of Cellblock has a part in"),
        # The kernel that runs the tests rarely has NFS, and no test could give it any.
        _one("user-mode-linux", "is the kernel with NFS on which two hosts share a jail", optional=True),
        _one("nfs-kernel-server", "exports the jail that two hosts share"),
        _one("nfs-common", "mounts it on them"),
        _one("iproute2", "gives each of these hosts a network"),
        _one("libcap2-bin", "gives files capabilities"),
        _one("rsync", "is what `bench volume` compares with"),
        _one("acl", "gives files access lists"),
        _one("squashfs-tools", "makes and unpacks the images of the container runtime"),
        _one("squashfuse", "mounts the images of the container runtime"),
        _one("fuse-overlayfs", "lets containers write over images where the kernel does not"),
        _one("liblz4-dev", "compresses images of the container runtime; headers and library"),
        _one("zlib1g-dev", "compresses images of the container runtime for old readers; headers and library"),
        _one("libcurl4-openssl-dev", "speaks to registries for the container runtime; headers and library"),
        _one("libjansson-dev", "reads manifests of images for the container runtime; headers and library"),
        _one("umoci", "unpacks images, to compare with what the container runtime makes of them"),
        _one("dpkg-dev", "packs the small packages that tests compile and install"),
        _one("lintian", "checks Debian packages against Debian's policy"),
        _one("rpm", "unpacks the RPMs"),
        _one("rpmlint", "checks them"),
        _one("binutils", "shows how the compiled plugins are hardened and what they export"),
        # The command is a package of its own since Debian 13 and Ubuntu 24.10, and so is its BuildKit plugin.
        Need(
            "runs the daemon that builds rendered Containerfiles",
            (("docker.io", "docker-cli", "docker-buildx"), ("docker.io", "docker-cli"), ("docker.io",)),
            optional=True,
        ),
        # clang alone cannot link what it instruments. Ubuntu 22.04 has the runtime in libclang-common.
        Need(
            "fuzzes the parser of mount plans and the resolver of paths",
            (
                ("clang", "libclang-rt-dev"),
                ("clang", "libclang-rt-18-dev"),
                ("clang", "libclang-common-14-dev"),
            ),
        ),
    ),
    # Of the Kubernetes that a program beside the checkout starts, where there is one.
    "kubernetes": (
        _one("containerd", "runs the pods of the tests' Kubernetes", optional=True),
        _one("etcd-server", "keeps its objects", optional=True),
        _one("containernetworking-plugins", "gives its pods addresses", optional=True),
        _one("conntrack", "is what its kube-proxy runs", optional=True),
        _one("dnsmasq-base", "answers for the names of its services", optional=True),
    ),
}
KUBERNETES_PROGRAMS = (
    "containerd",
    "runc",
    "etcd",
    "iptables",
    "conntrack",
    "skopeo",
    "openssl",
    "gcc",
    "dnsmasq",
)
"""What that program runs, of the groups above."""


@dataclass(frozen=True)
class Missing:
    """Packages to install together, and why."""

    packages: tuple[str, ...]
    why: str


class NotOfferedError(Exception):
    """apt offers no package for a need. The message names the package and why it is needed."""


def interpreter_needs(version: tuple[int, int], *, has_ensurepip: bool, has_headers: bool) -> list[Need]:
    """What the running interpreter lacks to make a virtual environment and compile an extension.

    Debian and Ubuntu split both off their python3; an interpreter from elsewhere brings them along.
    """
    python = f"python{version[0]}.{version[1]}"
    needs = []
    if not has_ensurepip:
        needs.append(_one(f"{python}-venv", "makes Cellblock's virtual environment"))
    if not has_headers:
        needs.append(_one(f"{python}-dev", "has the headers to compile the jail's mount core for Python"))
    return needs


def network_need(podman_version: str) -> Need:
    """What gives the cluster's containers a network with names, for this version of podman.

    Podman before 4.9 prefers CNI, and CNI needs a plugin for names; later ones know netavark alone, even
    where Debian still offers that plugin (13 does).
    """
    why = "gives the cluster's nodes a network with names"
    cni = ("containernetworking-plugins", "golang-github-containernetworking-plugin-dnsname")
    netavark = ("netavark", "aardvark-dns", "nftables")
    digits = re.match(r"(?:\d+:)?(\d+)\.(\d+)", podman_version)
    old = digits is not None and (int(digits[1]), int(digits[2])) < (4, 9)
    return Need(why, (cni, netavark) if old else (netavark,))


def needs_of(groups: Iterable[Group], interpreter: Iterable[Need], podman_version: str) -> list[Need]:
    """All that `groups` need on this machine; `interpreter` is `interpreter_needs()`."""
    needs: list[Need] = []
    for group in groups:
        needs += NEEDS[group]
        if group == "python":
            needs += interpreter
        if group == "core":
            needs.append(network_need(podman_version))
    return needs


def missing(needs: Iterable[Need], installed: Collection[str], offered: Collection[str]) -> list[Missing]:
    """Packages to install so that every need is met; empty when all are.

    Raises `NotOfferedError` when a need that is not optional can be met by nothing apt offers.
    """
    found = []
    for need in needs:
        if need.is_met(installed):
            continue
        for choice in need.alternatives:
            wanted = tuple(package for package in choice if package not in installed)
            if all(package in offered for package in wanted):
                found.append(Missing(wanted, need.why))
                break
        else:
            if not need.optional:
                names = " or ".join(" + ".join(choice) for choice in need.alternatives)
                raise NotOfferedError(f"apt offers no {names}, which {need.why}")
    return found


def names(needs: Iterable[Need]) -> list[str]:
    """Every package any of `needs` could ask for."""
    return sorted({package for need in needs for choice in need.alternatives for package in choice})


@dataclass(frozen=True)
class Available:
    """What a machine has and what its apt offers; `offered` maps a package to its candidate version."""

    installed: frozenset[str]
    offered: dict[str, str]


def available(packages: Collection[str]) -> Available:
    """Ask dpkg and apt about `packages`; both empty on a machine without them."""
    offered, name = {}, ""
    if not packages:  # the queries would tell about all there are
        return Available(frozenset(), {})
    for line in _lines(["apt-cache", "policy", *packages]):
        key, _, value = line.strip().partition(":")
        if not line.startswith(" "):
            name = key
        elif key == "Candidate" and value.strip() != "(none)":
            offered[name] = value.strip()
    lines = _lines(["dpkg-query", "-W", "-f", "${Package} ${db:Status-Status}\n", *packages])
    return Available(frozenset(line.split()[0] for line in lines if line.endswith(" installed")), offered)


def _lines(command: list[str]) -> list[str]:
    """Output of a query; dpkg-query exits 1 when it knows only some of the names: no failure here."""
    try:
        done = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            check=False,
            env={**os.environ, "LC_ALL": "C"},
        )
    except FileNotFoundError:
        return []
    return done.stdout.splitlines()
