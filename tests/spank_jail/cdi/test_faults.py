# SPDX-License-Identifier: Apache-2.0
"""What is missing or fails while a cdi line is applied: all of it is there, or nothing."""

from __future__ import annotations

import pytest

from tests.spank_jail.cdi.driver import (
    DEV,
    Driver,
)
from tests.spank_jail.conftest import Jail


@pytest.mark.parametrize("gone", ["library", "directory"])
def test_nofail_leaves_out_all_or_nothing(system: Jail, driver: Driver, gone: str) -> None:
    if gone == "library":
        (driver.files / "nvoptix.bin").unlink()
    else:
        (system.root / "usr/local/nvidia/bin").rmdir()
    facts = system.facts(
        "notices = enter(); tell(notices=notices, mounts=mounts(), dev=os.listdir('/dev'))",
        f"{DEV}{driver.line},nofail",
    )
    assert len(facts["notices"]) == 1
    assert (
        'nvoptix.bin" is missing' in facts["notices"][0]
        or "lacks the driver's directory" in facts["notices"][0]
    )
    assert not any("nvidia" in mount for mount in facts["mounts"])
    assert not any("nvidia" in name for name in facts["dev"])


FAILURES = """
        def action():
            enter()
            shown = [path for path in mounts() + os.listdir("/dev") if "nvidia" in path]
            whole = len(shown) >= 6 and os.path.exists("/usr/local/nvidia/bin/nvidia-smi")
            return "whole" if whole else "out" if not shown else "half %s" % shown

        tell(results=ends(with_each_call_failing(action, errno.NUMBER), errno.NUMBER))
"""


@pytest.mark.parametrize(("number", "options", "expected"), [
    ("EIO", "", {"clean"}),
    # What is missing may be left out, but then all of it; and be told without the call that found it.
    ("ENOENT", ",nofail", {"clean", "unnamed", "whole", "out"}),
])  # fmt: skip
def test_every_call_may_fail(
    system: Jail, driver: Driver, number: str, options: str, expected: set[str]
) -> None:
    facts = system.facts(FAILURES.replace("NUMBER", number), f"{DEV}{driver.line}{options}\n")
    assert set(facts["results"]) == expected
    assert len(facts["results"]) > 80
    if number == "ENOENT":
        assert facts["results"].count("out") >= 3


def test_a_missing_parser_is_named(system: Jail, driver: Driver) -> None:
    facts = system.facts(
        """
        results = with_each_call_failing(enter, errno.ENOENT)
        tell(texts=[told["error"] for told in results if "libyaml" in told.get("error", "")])
        """,
        driver.line,
    )
    assert len(facts["texts"]) == 1
    assert "libyaml-0.so.2, which reads CDI specifications, cannot be loaded" in facts["texts"][0]
    assert "install libyaml-0-2 on this node" in facts["texts"][0]
