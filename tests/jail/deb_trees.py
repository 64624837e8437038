# SPDX-License-Identifier: Apache-2.0
"""Makes root filesystems with a real dpkg database, from small packages, by dpkg itself."""

from __future__ import annotations

import hashlib
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

ACCOUNTS = {
    "passwd": "root:x:0:0:root:/root:/bin/sh\nold:x:100:100::/:/bin/false\n",
    "group": "root:x:0:\nold:x:100:\nvideo:x:44:\n",
    "shadow": "root:*:19000:0:99999:7:::\nold:!:19000::::::\n",
    "gshadow": "root:*::\nold:!::\nvideo:*::\n",
    "subuid": "",
    "subgid": "",
}


@dataclass(frozen=True)
class Deb:
    """A package to be: `files` maps paths to content; those below /etc are conffiles."""

    name: str
    version: str
    files: dict[str, str] = field(default_factory=dict)
    fields: dict[str, str] = field(default_factory=dict)

    def build(self, folder: Path) -> Path:
        """Pack it; its control fields, conffiles and MD5 sums are as debhelper would make them."""
        tree = folder / f"{self.name}_{self.version}"
        deb = folder / f"{tree.name}.deb"
        (tree / "DEBIAN").mkdir(parents=True)
        files = {
            f"usr/bin/{self.name}": f"#!/bin/sh\necho {self.name} {self.version}\n",
            f"usr/share/{self.name}/data": self.version * 100,
            f"usr/share/{self.name}/only-{self.version}": "x",
            f"etc/{self.name}.conf": f"version = {self.version}\n",
            **self.files,
        }
        sums, conffiles = [], []
        for name, content in files.items():
            path = tree / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
            path.chmod(0o755 if name.startswith("usr/bin") else 0o644)
            if name.startswith("etc/"):
                conffiles.append(f"/{name}\n")
            else:
                sums.append(f"{hashlib.md5(content.encode()).hexdigest()}  {name}\n")
        more = "".join(f"{key}: {value}\n" for key, value in self.fields.items())
        (tree / "DEBIAN/control").write_text(
            f"Package: {self.name}\nVersion: {self.version}\nArchitecture: amd64\nMaintainer: n <n@test>\n"
            f"Installed-Size: 3\n{more}Description: a test\n"
        )
        (tree / "DEBIAN/md5sums").write_text("".join(sums))
        (tree / "DEBIAN/conffiles").write_text("".join(conffiles))
        build = ["dpkg-deb", "--root-owner-group", "-Znone", "--build", str(tree), str(deb)]
        subprocess.run(build, check=True, capture_output=True)
        return deb


@dataclass(frozen=True)
class DebTree:
    """The tree at `root`."""

    root: Path
    debs: Path

    @staticmethod
    def make(root: Path, debs: Path, *packages: Deb) -> DebTree:
        """A new tree with accounts and these packages."""
        for name in ("etc", "home", "root", "opt", "tmp", "usr/bin", "usr/lib", "usr/local/bin"):
            (root / name).mkdir(parents=True)
        for name, link in (("bin", "usr/bin"), ("lib", "usr/lib")):
            (root / name).symlink_to(link)
        for name, text in ACCOUNTS.items():
            (root / "etc" / name).write_text(text)
        for name in ("info", "updates", "triggers", "alternatives"):
            (root / "var/lib/dpkg" / name).mkdir(parents=True)
        (root / "var/lib/dpkg/status").touch()
        (root / "var/lib/apt/lists").mkdir(parents=True)
        (root / "var/lib/apt/extended_states").touch()
        tree = DebTree(root, debs)
        tree.install(*packages)
        return tree

    def install(self, *packages: Deb) -> None:
        """Install or upgrade, as `dpkg -i`."""
        files = []
        for package in packages:
            deb = self.debs / f"{package.name}_{package.version}.deb"
            files.append(str(deb if deb.exists() else package.build(self.debs)))
        if files:
            self.dpkg("--force-confold", "-i", *files)

    def dpkg(self, *arguments: str) -> str:
        """Run dpkg on the tree; an assertion that it ended well."""
        command = ["dpkg", f"--root={self.root}", "--force-depends", "--force-script-chrootless", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def versions(self) -> dict[str, str]:
        """Name -> version of what is installed."""
        command = ["dpkg-query", f"--admindir={self.root}/var/lib/dpkg", "-W"]
        command += ["-f", "${Package} ${Version} ${db:Status-Status}\n"]
        lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
        return {row[0]: row[1] for line in lines if (row := line.split())[-1] == "installed"}

    def check(self) -> None:
        """`dpkg --audit` and `apt-get check` find nothing, and each package's files are whole."""
        assert self.dpkg("--audit") == ""
        apt = ["apt-get", "check", "-o", f"Dir::State::status={self.root}/var/lib/dpkg/status"]
        apt += ["-o", f"Dir::State={self.root}/var/lib/apt", "-o", "Dir::Cache::pkgcache="]
        apt += ["-o", "Dir::Cache::srcpkgcache=", "-o", "Debug::NoLocking=1"]
        apt += ["-o", "Dir::Etc::sourcelist=/dev/null", "-o", "Dir::Etc::sourceparts=/dev/null"]
        done = subprocess.run(apt, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        wrong = [line for line in self.dpkg("--verify").splitlines() if " c /etc/" not in line]
        assert wrong == []
