# SPDX-License-Identifier: Apache-2.0
"""Rules: Prometheus reads them, and each alert fires when it should and not before."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from cellblock.metrics.alert_rules import rules_file

UNIT_TESTS = Path(__file__).with_name("rules_test.yaml")


def promtool(*command: str) -> subprocess.CompletedProcess[str]:
    if shutil.which("promtool") is None:
        pytest.skip("promtool, of the package prometheus, is not installed")
    return subprocess.run(["promtool", *command], capture_output=True, text=True, check=False)


def unit_tested(folder: Path, rules: str) -> subprocess.CompletedProcess[str]:
    (folder / "rules.yaml").write_text(rules)
    shutil.copy(UNIT_TESTS, folder)
    return promtool("test", "rules", str(folder / UNIT_TESTS.name))


def test_prometheus_reads_them() -> None:
    done = promtool("check", "rules", "--lint=all", "--lint-fatal", str(rules_file()))
    assert done.returncode == 0, done.stdout + done.stderr


def test_alerts_fire_when_they_should_and_not_before(tmp_path: Path) -> None:
    done = unit_tested(tmp_path, rules_file().read_text())
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("> 0.5 and", "> 0.8 and"),
        ("for: 3d", "for: 4d"),
        ("node) (slurm_node_cpus_a", "job) (slurm_node_cpus_a"),
    ],
)
def test_a_rule_that_changes_is_noticed(tmp_path: Path, right: str, wrong: str) -> None:
    text = rules_file().read_text()
    assert right in text
    assert unit_tested(tmp_path, text.replace(right, wrong)).returncode != 0


def test_each_alert_is_tried_both_ways() -> None:
    groups = yaml.safe_load(rules_file().read_text())["groups"]
    alerts = {rule["alert"] for group in groups for rule in group["rules"] if "alert" in rule}
    tried = [
        one
        for test in yaml.safe_load(UNIT_TESTS.read_text())["tests"]
        for one in test.get("alert_rule_test", ())
    ]
    assert {one["alertname"] for one in tried if one["exp_alerts"]} == alerts
    assert {one["alertname"] for one in tried if not one["exp_alerts"]} == alerts
