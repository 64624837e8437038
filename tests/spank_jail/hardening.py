# SPDX-License-Identifier: Apache-2.0
"""Finds what a binary lacks of the hardening that spank_jail/Makefile asks for, and what it exports."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

# The hooks that Slurm's loader looks up (slurm/spank.h), and what every plugin of Slurm must define.
HOOKS = {
    f"slurm_spank_{hook}"
    for hook in (
        "init", "slurmd_init", "job_prolog", "init_post_opt", "local_user_init", "user_init",
        "task_init_privileged", "task_init", "task_post_fork", "task_exit", "job_epilog", "slurmd_exit",
        "exit",
    )
}  # fmt: skip
PLUGIN = {"plugin_name", "plugin_type", "plugin_version", "spank_plugin_version"}
SESSION = {"pam_sm_open_session", "pam_sm_close_session"}


def _shows(*command: str | Path) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def _symbols(path: Path, which: str) -> set[str]:
    """Dynamic symbols, without versions."""
    lines = _shows("nm", "--dynamic", which, path).splitlines()
    return {line.split()[-1].partition("@")[0] for line in lines if line.strip()}


def exports(path: Path) -> set[str]:
    """Names that others can look up in a shared object."""
    return _symbols(path, "--defined-only")


def unversioned(path: Path) -> set[str]:
    """Names that a shared object must find elsewhere than in the C library, which gives each a version."""
    lines = _shows("nm", "--dynamic", "--undefined-only", path).splitlines()
    words = [line.split() for line in lines if line.strip()]
    return {name for kind, name in words if kind == "U" and "@" not in name}


def weaknesses(path: Path) -> list[str]:
    """One line for each kind of hardening that `path` lacks."""
    header = _shows("readelf", "--wide", "--file-header", path)
    dynamic = _shows("readelf", "--wide", "--dynamic", path)
    segments = _shows("readelf", "--wide", "--segments", path)
    wanted = _symbols(path, "--undefined-only")
    stack = re.search(r"GNU_STACK(?:\s+0x[0-9a-f]+){5}\s+(.*?)\s+0x", segments)
    loads = re.findall(r"^\s+LOAD(?:\s+0x[0-9a-f]+){5}\s+(.*?)\s+0x", segments, re.MULTILINE)
    found = {
        "its address is fixed (no PIE, no shared object)": not re.search(r"Type:\s+DYN", header),
        "symbols are bound late (no -z now)": "BIND_NOW" not in dynamic and "Flags: NOW" not in dynamic,
        "it brings a search path for libraries": bool(re.search(r"\((RPATH|RUNPATH)\)", dynamic)),
        "its text is relocated": "(TEXTREL)" in dynamic,
        "its relocated data stays writable (no -z relro)": "GNU_RELRO" not in segments,
        "its stack is executable": stack is None or "E" in stack[1],
        "memory is writable and executable": not loads or any("W" in x and "E" in x for x in loads),
        "its stack is not protected": "__stack_chk_fail" not in wanted,
        # Where the compiler sees that nothing can overflow, or cannot see the size, it takes the plain one.
        "calls are not fortified": not any(re.fullmatch(r"__(?!stack).*_chk", name) for name in wanted),
    }
    return [weakness for weakness, there in found.items() if there]
