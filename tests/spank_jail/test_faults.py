# SPDX-License-Identifier: Apache-2.0
"""Every system call of the core fails in turn, with several errors each: what is told, what is left."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.spank_jail.conftest import Jail

# Every kind of line, and with level capabilities every mask: all calls that entering a jail can make.
PLAN = """
    proc   /proc proc   defaults
    sysfs  /sys  sysfs  ro
    dev    /dev  dev    mode=0755,size=1m,ro
    devpts /dev/pts devpts mode=0620,ptmxmode=0666
    tmpfs  /dev/shm tmpfs mode=1777,size=1m
    mqueue /dev/mqueue mqueue defaults
    {node} /made/dir none rbind,ro,x-create=dir,x-jail.if={node}
    {node}/file /made/file none bind,x-create=file
"""
NOFAIL = "\n".join(f"{line},nofail" if line.strip() else line for line in PLAN.splitlines())
TARGETS = ["/proc", "/sys", "/dev", "/dev/pts", "/dev/shm", "/dev/mqueue", "/made/dir", "/made/file"]

# Reached only in slurmstepd: the window, namespaces that are kept, joining them; or looking for them.
CALLS = {
    "access", "chdir", "fsconfig", "fsmount", "fsopen", "fstat", "fstatfs", "lstat", "mkdirat", "mknodat",
    "mount_setattr", "move_mount", "open", "open_tree", "openat2", "pivot_root", "pread", "realpath",
    "symlinkat", "umount2", "unshare",
}  # fmt: skip
UNTRUSTED = CALLS - {"lstat", "realpath"}

ATTEMPTS = """

def attempts(number, **options):
    def action():
        return [text.split(": ")[1] for text in core.enter(root, plan, **options)]
    return with_each_call_failing(action, number, lambda: shutil.rmtree(root / "made", ignore_errors=True))
"""
# `left`: what the namespace in which all tries were made has of them.
TELL = "tell(tries=tries, left=[mount for mount in mounts() if mount.startswith(str(base))])"

ERRORS = ["EPERM", "ENOMEM", "ENOSYS", "ESTALE", "ENOSPC", "EIO"]
MISSING = ["ENOENT", "ENOTDIR", "ENODEV"]


def attempts(jail: Jail, plan: str, errors: list[str], options: str) -> dict[str, Any]:
    loop = f"tries = {{name: attempts(getattr(errno, name), {options}) for name in {errors}}}"
    facts = jail.facts(f"{ATTEMPTS}\n{loop}\n{TELL}", plan.replace("\n    ", "\n"))
    assert facts["left"] == []
    assert str(jail.base) not in Path("/proc/self/mountinfo").read_text()
    tries: dict[str, Any] = facts["tries"]
    return tries


def check_refusals(tries: dict[str, Any], calls: set[str]) -> None:
    """A failed call is named with its errno, nothing is left open, and every call had its turn."""
    for name, results in tries.items():
        *failed, entered = results
        assert entered["done"] == []
        assert [target for target in TARGETS if target not in entered["mounts"]] == []
        survived = [told["failed"] for told in failed if "error" not in told]
        # Where nodes cannot be made the node's own devices are bound.
        assert survived == (["mknodat"] if name == "EPERM" else []), name
        for told in failed:
            assert told["leaked"] == 0, (name, told)
            if "error" in told:
                assert told["syscall"] == told["failed"], (name, told)
                assert f"({name}): " in told["error"], (name, told)
                assert told["error"].rpartition(f"({name}): ")[2], (name, told)
        assert entered["leaked"] == 0
        assert {told["failed"] for told in failed} == calls


@pytest.mark.parametrize("level", ["filesystem", "capabilities"])
def test_every_system_call_may_fail_and_is_then_named(jail: Jail, level: str) -> None:
    trust = os.geteuid() != 0  # a user's "/" is nobody's in his namespace, and refused
    tries = attempts(jail, PLAN, ERRORS, f"level='{level}', trust_owners={trust}")
    calls = UNTRUSTED if trust else CALLS
    check_refusals(tries, calls)


def test_so_it_is_for_a_user_without_any_rights_outside(jail_of_a_user: Jail) -> None:
    tries = attempts(jail_of_a_user, PLAN, ["ENOMEM", "EPERM"], "level='capabilities', trust_owners=True")
    check_refusals(tries, UNTRUSTED)


def test_nofail_hides_none_of_them(jail: Jail) -> None:
    check_refusals(attempts(jail, NOFAIL, ["EPERM", "ESTALE", "EIO"], "trust_owners=True"), UNTRUSTED)


def test_nofail_leaves_out_what_is_missing_wholly_or_not_at_all(jail: Jail) -> None:
    left_out = 0
    for level in ("filesystem", "capabilities"):
        tries = attempts(jail, NOFAIL, MISSING, f"level='{level}', trust_owners=True")
        for name, results in tries.items():
            for told in results:
                assert told["leaked"] == 0
                if "error" in told:
                    assert (told["syscall"], f"({name}): " in told["error"]) == (told["failed"], True), told
                elif "/proc" not in told["done"]:
                    missing = [target for target in TARGETS if target not in told["mounts"]]
                    assert missing == told["done"], (name, told)
                    left_out += bool(missing)
    assert left_out > 20
