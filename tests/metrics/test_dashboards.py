# SPDX-License-Identifier: Apache-2.0
"""Dashboards: Grafana can import them, and what they ask for is what the exporter serves."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cellblock.cli.app import app
from cellblock.metrics.dashboards import ALL
from cellblock.metrics.panels import Dashboard, render
from cellblock.paths import PROJECT
from tests import documented

_METRIC = re.compile(r"\b((?:slurm|cellblock)_[a-z0-9_]+)")


@pytest.mark.parametrize("dashboard", ALL, ids=lambda one: one.uid)
def test_each_panel_has_a_place_a_source_and_an_expression(dashboard: Dashboard) -> None:
    made = render(dashboard)
    panels = [panel for panel in made["panels"] if panel["type"] != "row"]
    assert len(panels) == sum(len(panels) for _, panels in dashboard.rows)
    for panel in panels:
        assert panel["title"]
        assert panel["datasource"]["uid"] == "${datasource}"
        assert panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24
        assert [target["expr"] for target in panel["targets"]]
        # Each expression asks for the clusters that are chosen, and no others.
        assert all('instance=~"$instance"' in target["expr"] for target in panel["targets"])
    assert {one["name"] for one in made["templating"]["list"]} == {"datasource", "instance"}


def test_each_has_a_uid_of_its_own_that_grafana_takes() -> None:
    uids = [one.uid for one in ALL]
    assert len(set(uids)) == len(uids) == 5
    assert all(re.fullmatch(r"[a-z-]{1,40}", uid) for uid in uids)


def test_the_page_names_each_metric_of_our_own_that_they_ask_for() -> None:
    page = (PROJECT / "docs/metrics.md").read_text()
    asked = {name for one in ALL for _, text in one.expressions() for name in _METRIC.findall(text)}
    assert {name for name in asked if name.startswith("cellblock_") and f"`{name}`" not in page} == set()


def test_the_command_writes_them_and_the_rules(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["render", "dashboards", "--output", str(tmp_path / "new" / "folder")])
    assert done.exit_code == 0, done.output
    files = sorted((tmp_path / "new" / "folder").iterdir())
    assert [json.loads(file.read_text())["uid"] for file in files] == sorted(one.uid for one in ALL)
    done = CliRunner().invoke(app, ["render", "rules", "--output", str(tmp_path)])
    assert done.exit_code == 0, done.output
    rules = (PROJECT / "deploy/prometheus/rules.yaml").read_text()
    assert (tmp_path / "cellblock-rules.yaml").read_text() == rules
    assert CliRunner().invoke(app, ["render", "rules"]).output == rules


def test_what_the_page_types(tmp_path: Path) -> None:
    for line in documented.lines_for("metrics.md", "test_what_the_page_types"):
        documented.type_line(line, tmp_path)
    assert (tmp_path / "rules" / "cellblock-rules.yaml").is_file()
    assert len(list((tmp_path / "dashboards").glob("*.json"))) == len(ALL)
