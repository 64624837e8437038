# SPDX-License-Identifier: Apache-2.0
"""Which specification counts, and what is said of a wrong one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.spank_jail.cdi.driver import (
    DEV,
    REFUSED,
    Driver,
    edited,
    hook,
    install,
    needs_root,
    run_program,
)
from tests.spank_jail.conftest import Jail
from tests.spank_jail.test_c_units import enter


def test_the_later_directory_wins(system: Jail, driver: Driver) -> None:
    newer = install(system.base, "570.1.2")
    assert run_program(system, f"{driver.line},spec-dir={newer.specs}") == "570"
    assert run_program(system, f"{newer.line},spec-dir={driver.specs}") == "535"


def test_two_files_of_a_directory_conflict(jail: Jail, driver: Driver) -> None:
    driver.write(json.dumps(driver.spec(), indent="\t"), "other.json")
    facts = jail.facts(REFUSED, DEV + driver.line)
    assert 'other.json" define this device; remove it from one of them' in facts["text"]


def test_json_is_read_as_well(system: Jail, driver: Driver) -> None:
    (driver.specs / "nvidia.yaml").unlink()
    driver.write(json.dumps(driver.spec(), indent="\t"), "nvidia.json")
    assert run_program(system, driver.line) == "535"


def test_an_unknown_device_is_told_what_there_is(jail: Jail, driver: Driver) -> None:
    facts = jail.facts(REFUSED, driver.line.replace("=all", "=7"))
    assert "has this device; of its kind there are: 0, all" in facts["text"]
    assert facts["target"] == "nvidia.com/gpu=7"


def bad_specs(driver: Driver) -> list[tuple[dict[str, Any] | str, int, str]]:
    """A wrong specification, the line to be named, and what is said."""
    header = 'cdiVersion: "0.5.0"\nkind: nvidia.com/gpu\n'
    device = "devices:\n- name: all\n  containerEdits:\n"
    mount, node = (f"{header}{device}    {kind}:\n" for kind in ("mounts", "deviceNodes"))
    return [
        ("", 1, "the file is empty"),
        ('{"cdiVersion": "0.5.0", "kind": "nvi', 1, "neither YAML nor JSON"),
        (header + "devices: [\n", 4, "neither YAML nor JSON"),
        ('kind: nvidia.com/gpu\ncdiVersion: "9.0.0"\n', 2, 'cdiVersion "9.0.0" is not known'),
        ("[]", 1, "there is no cdiVersion"),
        (header + "devices: {}\n", 3, "devices must be a list"),
        (header + "devices: &a []\n", 3, "anchors (&)"),
        (header + "devices: *a\n", 3, "anchors (&)"),
        (header + "x: 1\n", 3, 'no key "x"'),
        (header + "kind: again\n", 3, 'the key "kind" is there twice'),
        (header + "annotations: " + "[" * 40 + "]" * 40 + "\n", 3, "nested deeper"),
        (header + "---\n" + header, 3, "a second document"),
        (header + "annotations: [" + "0," * 200001 + "]\n", 3, "more values"),
        (header + device + "    env: [NOVALUE]\n", 6, "NAME=VALUE"),
        (mount + "    - hostPath: relative\n      containerPath: /x\n", 7, "absolute path"),
        (mount + "    - {hostPath: /etc, containerPath: /x/../y}\n", 7, 'must not contain ".."'),
        (mount + "    - {hostPath: /etc, containerPath: /x, options: [loop]}\n", 7, '"loop"'),
        (node + "    - path: /etc/shadow\n", 7, "must be below /dev"),
        (node + "    - path: /dev/x\n      major: many\n", 8, "must be a number"),
        (node + "    - {path: /dev/x, hostPath: /etc/passwd}\n", 7, "is no device"),
        (header + "devices: [{name: a b}]\n", 3, "no CDI name"),
        (header + "devices: [{name: a}, {name: a}]\n", 3, "is there twice"),
        ("x" * (4 * 1024 * 1024 + 1), 0, "at most 4194304 bytes"),
    ]  # fmt: skip


@pytest.mark.parametrize("which", range(23))
def test_a_wrong_specification_is_told_where_and_why(system: Jail, driver: Driver, which: int) -> None:
    spec, line, text = bad_specs(driver)[which]
    driver.write(spec)
    facts = system.facts(REFUSED, f"{DEV}{driver.line},nofail")
    assert text in facts["text"]
    assert (facts["file"], facts["line"]) == (str(driver.specs / "nvidia.yaml"), line)


def test_a_wrong_link_of_a_hook_is_named(system: Jail, driver: Driver) -> None:
    driver.write(edited(driver, hooks=[hook("create-symlinks", "--link", "nowhere")]))
    assert "expected CONTENT::/PATH" in system.facts(REFUSED, DEV + driver.line)["text"]


def test_the_environment_is_handed_out(jail: Jail, driver: Driver) -> None:
    facts = jail.facts("tell(got=core.cdi_environment(plan, trust_owners=True))", driver.line)
    assert facts["got"] == {"NVIDIA_VISIBLE_DEVICES": "void", "DRIVER": driver.version}


def test_a_specification_that_others_can_write_is_refused(build: Path, system: Jail, driver: Driver) -> None:
    needs_root()
    (driver.specs / "nvidia.yaml").chmod(0o666)
    system.plan.write_text(DEV + driver.line)
    done = enter(build, "--root", str(system.root), "--plan", str(system.plan), "--check")
    assert done.returncode == 1
    assert "the CDI specification must be writable by root alone" in done.stderr
