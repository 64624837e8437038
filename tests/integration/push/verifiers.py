# SPDX-License-Identifier: Apache-2.0
"""Runs programs that check signatures: cosign, and skopeo with a policy, from the newest Debian."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from cellblock.build.mirrors import archive
from cellblock.paths import PROJECT
from cellblock.variants import load_variants
from tests.integration.archive import private_apt


def fetch(folder: Path, package: str, *, alone: bool) -> Path:
    """The root that a package of Debian 14 and, unless `alone`, all that it depends on unpack to."""
    variant = load_variants(PROJECT / "images" / "variants.yaml")["debian14"]
    get = private_apt(folder / "apt", archive(variant).lines[:1], "Acquire::Check-Valid-Until=false")
    command = (
        ["download", package]
        if alone
        else ["install", "--download-only", "--no-install-recommends", "-y", package]
    )
    for each in (["update"], command):
        subprocess.run([*get, *each], cwd=folder, check=True, capture_output=True)
    for deb in [*folder.glob("*.deb"), *folder.glob("apt/archives/*.deb")]:
        subprocess.run(["dpkg-deb", "--extract", deb, folder / "root"], check=True)
    return folder / "root"


def make_key(folder: Path, name: str) -> tuple[Path, Path]:
    """A private and a public key, by openssl, as docs/attest.md says."""
    private, public = folder / f"{name}.pem", folder / f"{name}.pub"
    generate = ["openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", str(private)]
    subprocess.run(generate, check=True, capture_output=True)
    derive = ["openssl", "ec", "-in", str(private), "-pubout", "-out", str(public)]
    subprocess.run(derive, check=True, capture_output=True)
    return private, public


@dataclass(frozen=True)
class Cosign:
    """The program; it needs nothing but a C library."""

    program: Path

    def run(self, home: Path, command: str, key: Path, *more: str) -> subprocess.CompletedProcess[str]:
        # No transparency log: see docs/decisions/attest-own-signatures.md.
        argv = [str(self.program), command, "--key", str(key), "--insecure-ignore-tlog"]
        return subprocess.run(
            [*argv, "--allow-http-registry", *more],
            capture_output=True,
            text=True,
            env={**os.environ, "HOME": str(home)},
            check=False,
        )


@dataclass(frozen=True)
class Skopeo:
    """The program with the libraries of its release."""

    root: Path

    def pull(
        self, reference: str, key: Path, folder: Path, auth_file: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Copy an image as a machine would whose policy wants it signed by `key`, for the name it pulls."""
        folder.mkdir(parents=True)
        host = reference.partition("/")[0]
        signed = [{"type": "sigstoreSigned", "keyPath": str(key)}]
        policy = {"default": [{"type": "reject"}], "transports": {"docker": {host: signed}}}
        (folder / "policy.json").write_text(json.dumps(policy))
        (folder / "registries.d").mkdir()
        where = f"docker:\n  {host}:\n    use-sigstore-attachments: true\n"
        (folder / "registries.d/here.yaml").write_text(where)
        return self.copy(reference, folder, folder / "layout", auth_file)

    def copy(
        self, reference: str, policy: Path, layout: Path, auth_file: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Copy an image by the policy.json and registries.d in the folder `policy`."""
        libraries = self.root / "usr/lib/x86_64-linux-gnu"
        argv = [str(libraries / "ld-linux-x86-64.so.2"), "--library-path", str(libraries)]
        argv += [str(self.root / "usr/bin/skopeo"), "--policy", str(policy / "policy.json")]
        argv += ["--registries.d", str(policy / "registries.d"), "copy", "--src-tls-verify=false"]
        # A layout has no place for them; they are checked all the same.
        argv += ["--remove-signatures"]
        argv += ["--src-authfile", str(auth_file)] if auth_file else []
        argv += [f"docker://{reference}", f"oci:{layout}:x"]
        return subprocess.run(argv, capture_output=True, text=True, check=False)
