# SPDX-License-Identifier: Apache-2.0
"""Makes a GPU driver for tests: real shared objects and devices, and a specification of them in CDI form."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.spank_jail.conftest import Jail

LIBRARIES = "usr/local/nvidia/lib64"
PROGRAMS = "usr/local/nvidia/bin"
WHERE = "/usr/lib/x86_64-linux-gnu"
"""Where the driver's files lie on a node, and where its specification shows them."""


def compile_c(source: str, output: Path, *options: str) -> Path:
    if not shutil.which("gcc"):
        pytest.skip("gcc is not installed")
    output.parent.mkdir(parents=True, exist_ok=True)
    command = ["gcc", "-x", "c", "-", "-x", "none", "-o", str(output), *options]
    subprocess.run(command, input=source, text=True, check=True, capture_output=True)
    return output


def library(path: Path, soname: str, source: str) -> Path:
    return compile_c(source, path, "-shared", "-fPIC", f"-Wl,-soname,{soname}")


@dataclass(frozen=True)
class Driver:
    """A node's driver of some version. `specs` holds its specification, `files` its files."""

    version: str
    specs: Path
    files: Path

    @property
    def line(self) -> str:
        return f"cdi nvidia.com/gpu=all cdi spec-dir={self.specs}"

    def spec(self) -> dict[str, Any]:
        """What nvidia-ctk would write about this driver: its keys, its order, its hooks."""
        cuda, config = f"libcuda.so.{self.version}", "/usr/share/nvidia/nvoptix.bin"
        bound = ["ro", "nosuid", "nodev", "bind"]
        zero = {"deviceNodes": [{"path": "/dev/nvidia0", "hostPath": "/dev/zero"}]}
        shown = (f"{WHERE}/{cuda}", "/usr/bin/nvidia-smi", config)
        links = [f"libcuda.so.1::{WHERE}/libcuda.so", f"{cuda}::{WHERE}/libcuda.so.1"]
        folders = ["--folder", WHERE]
        return {
            "cdiVersion": "0.5.0",
            "kind": "nvidia.com/gpu",
            "devices": [
                {"name": name, "containerEdits": zero}
                for name in ("0", "all")
            ],
            "containerEdits": {
                "env": ["NVIDIA_VISIBLE_DEVICES=void", f"DRIVER={self.version}"],
                "deviceNodes": [
                    {"path": "/dev/nvidiactl", "hostPath": "/dev/full"},
                    {"path": "/dev/dri/card1", "hostPath": "/dev/null", "permissions": "rw"},
                ],
                "hooks": [
                    hook("create-symlinks", *(part for link in links for part in ("--link", link))),
                    hook("create-symlinks", "--link", "../card1::/dev/dri/by-path/pci-0000:01:00.0-card"),
                    hook("enable-cuda-compat", f"--host-driver-version={self.version}"),
                    hook("update-ldcache", *folders),
                ],
                "mounts": [
                    {"hostPath": f"{self.files}/{Path(path).name}", "containerPath": path, "options": bound}
                    for path in shown
                ],
            },
        }  # fmt: skip

    def write(self, spec: dict[str, Any] | str, name: str = "nvidia.yaml") -> None:
        self.specs.mkdir(exist_ok=True)
        (self.specs / name).write_text(
            spec if isinstance(spec, str) else yaml.safe_dump(unshared(spec), sort_keys=False)
        )


def unshared(spec: Any) -> Any:
    """A copy in which no list is the same object twice: PyYAML would write an anchor for it."""
    return json.loads(json.dumps(spec))


def hook(*arguments: str) -> dict[str, Any]:
    return {
        "hookName": "createContainer",
        "path": "/usr/bin/nvidia-cdi-hook",
        "args": ["nvidia-cdi-hook", *arguments],
    }


def install(base: Path, version: str) -> Driver:
    """A driver of `version` on a node of its own: a directory below `base`."""
    driver = Driver(version, base / f"cdi-{version}", base / f"driver-{version}")
    major = version.split(".")[0]
    library(
        driver.files / f"libcuda.so.{version}",
        "libcuda.so.1",
        f"int cuInit(unsigned f) {{ return {major}; }}",
    )
    for name, text in (("nvidia-smi", f"#!/bin/sh\necho driver {version}\n"), ("nvoptix.bin", version)):
        (driver.files / name).write_text(text)
    (driver.files / "nvidia-smi").chmod(0o755)
    driver.write(driver.spec())
    return driver


def give_a_system(root: Path, stubs: Path) -> None:
    """Makes `root` a jail: the stubs as the image has them, and places for the node's own /usr."""
    for folder in (LIBRARIES, PROGRAMS, "usr/lib", "usr/bin", "etc/ld.so.conf.d", "dev", "proc"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    for name in ("bin", "lib"):
        (root / name).symlink_to(f"usr/{name}")
    (root / "lib64").mkdir()
    shutil.copytree(stubs, root / LIBRARIES, dirs_exist_ok=True)
    (root / "etc/ld.so.conf").write_text(f"/{LIBRARIES}\n/usr/lib\n{WHERE}\n")
    subprocess.run(["ldconfig", "-r", str(root)], check=True, capture_output=True)


def snapshot(root: Path) -> dict[str, tuple[Any, ...]]:
    """Everything about a tree that a write to it would change."""
    found: dict[str, tuple[Any, ...]] = {}
    for folder, folders, names in os.walk(root):
        for name in [*folders, *names, "."]:
            path = Path(folder, name)
            st = path.lstat()
            found[str(path)] = (
                st.st_ino,
                st.st_mode,
                st.st_uid,
                st.st_size,
                st.st_nlink,
                st.st_mtime_ns,
                st.st_ctime_ns,
            )
    return found


DEV = "proc /proc proc defaults\ndev /dev dev mode=755,size=1m\n"


# The node's C library stands in for a distribution.
SYSTEM = "/usr/lib /usr/lib none rbind,ro\n/usr/lib64 /lib64 none bind,ro\n/usr/bin /usr/bin none bind,ro\n"


REFUSED = """
    try:
        enter()
        tell(text="entered")
    except core.JailError as error:
        tell(text=error.message, file=error.file, line=error.line, target=error.target, number=error.number)
"""


def edited(driver: Driver, **changes: Any) -> dict[str, Any]:
    spec = driver.spec()
    spec["containerEdits"].update(changes)
    return spec


def run_program(jail: Jail, plan: str) -> str:
    facts = jail.facts(
        """
        import subprocess
        environment = {"PATH": "/usr/bin"}
        enter()
        out = subprocess.run(["/data/program"], capture_output=True, text=True, env=environment)
        tell(out=out.stdout.strip() or out.stderr)
        """,
        SYSTEM + DEV + plan,
    )
    return str(facts["out"])


def needs_root() -> None:
    if os.geteuid():
        pytest.skip("needs root: it makes device nodes")
