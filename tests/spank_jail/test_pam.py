# SPDX-License-Identifier: Apache-2.0
"""The PAM module in a stack of the real libpam: what its arguments make of a session."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.spank_jail.conftest import Distribution
from tests.spank_jail.test_c_units import build, make, tools

__all__ = ["build", "tools"]  # fixtures

# Opens a session as sshd does, with what the module says to the user.
SESSION = """
said = []

class Message(ctypes.Structure):
    _fields_ = [("style", ctypes.c_int), ("text", ctypes.c_char_p)]

class Response(ctypes.Structure):
    _fields_ = [("text", ctypes.c_void_p), ("code", ctypes.c_int)]

Talk = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.POINTER(ctypes.POINTER(Message)),
                        ctypes.POINTER(ctypes.POINTER(Response)), ctypes.c_void_p)

class Conversation(ctypes.Structure):
    _fields_ = [("talk", Talk), ("data", ctypes.c_void_p)]

libc.calloc.restype = ctypes.c_void_p

@Talk
def talk(count, messages, responses, data):
    said.extend(messages[i].contents.text.decode() for i in range(count))
    responses[0] = ctypes.cast(libc.calloc(count, ctypes.sizeof(Response)), ctypes.POINTER(Response))
    return 0

# PAM's result (pam_modules.h): 0 is success, 14 a refused session.
def open_session(module, arguments):
    stacks = base / "pam.d"
    stacks.mkdir()
    for service in ("jail", "other"):
        (stacks / service).write_text(f"session required {module} root={root} plan={plan} {arguments}\\n")
    pam, handle = ctypes.CDLL("libpam.so.0"), ctypes.c_void_p()
    conversation = Conversation(talk, None)
    started = pam.pam_start_confdir(b"jail", b"root", ctypes.byref(conversation), str(stacks).encode(),
                                    ctypes.byref(handle))
    assert started == 0, started
    return pam.pam_open_session(handle, 0)
"""
PERF_EVENT_OPEN = {"x86_64": 298, "aarch64": 241}[os.uname().machine]


@pytest.fixture(scope="module")
def module(build: Path) -> Path:
    done = make(build, "pam")
    assert done.returncode == 0, done.stderr
    return build / "pam_jail.so"


def session(distribution: Distribution, module: Path, arguments: str) -> dict[str, Any]:
    """What came of a session: with no address to read from, the kernel says EFAULT before anything else."""
    script = f"""
result = open_session({str(module)!r}, {arguments!r})
tell(result=result, said=said, inside=not plan.exists(),  # below /tmp, which is the jail's own
     perf=syscall_error({PERF_EVENT_OPEN}, 0, 0, -1 & (1 << 64) - 1, -1 & (1 << 64) - 1))
"""
    return distribution.facts(SESSION + script)


@pytest.mark.parametrize(
    ("arguments", "perf"),
    [
        ("", "EPERM"),
        ("allow=perf_event_open", "EFAULT"),
        ("level=capabilities allow=perf_event_open", "EFAULT"),
        ("level=filesystem", "EFAULT"),
    ],
)
def test_a_session_may_measure_where_the_administrator_allows_it(
    distribution: Distribution, module: Path, arguments: str, perf: str
) -> None:
    found = session(distribution, module, arguments)
    assert (found["result"], found["said"], found["inside"], found["perf"]) == (0, [], True, perf)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ("allow=bpf", '"bpf" is no system call that can be allowed; there is: perf_event_open'),
        ("allow=", "is no system call that can be allowed"),
        ("level=pid", "level=pid cannot be had here"),
        ("level=most", 'unknown level "most"'),
        ("nofail", 'unknown argument "nofail" in the PAM configuration; known: root=/PATH'),
        ("plan=/no/such/plan", "/no/such/plan: realpath: No such file or directory (ENOENT): the mount plan"),
    ],
)
def test_a_session_with_a_wrong_argument_is_refused_and_told_why(
    distribution: Distribution, module: Path, arguments: str, why: str
) -> None:
    found = session(distribution, module, arguments)
    assert (found["result"], found["inside"]) == (14, False)
    assert len(found["said"]) == 1
    assert found["said"][0].startswith("pam_jail: ")
    assert why in found["said"][0]
