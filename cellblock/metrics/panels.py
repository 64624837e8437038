# SPDX-License-Identifier: Apache-2.0
"""Defines panels of a dashboard as data, and makes the JSON that Grafana imports, by Grafana's library."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from grafana_foundation_sdk.builders import bargauge, dashboard, prometheus, stat, table, timeseries
from grafana_foundation_sdk.builders import common as common_builders
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common
from grafana_foundation_sdk.models.common import StackingMode
from grafana_foundation_sdk.models.dashboard import DataSourceRef, VariableRefresh, VariableSort

# Grafana's grid is 24 wide.
_WIDTH = 24
_SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")


def of(metric: str, *labels: str) -> str:
    """The selector of `metric` in the clusters that the dashboard is set to."""
    inside = ",".join(('instance=~"$instance"', *labels))
    return f"{metric}{{{inside}}}"


@dataclass(frozen=True)
class Panel:
    """A panel: `queries` are pairs of a PromQL expression and the legend of what it gives."""

    title: str
    queries: tuple[tuple[str, str], ...]
    kind: Literal["lines", "stacked", "number", "bars", "table"] = "lines"
    unit: str = "short"
    width: int = 12
    description: str = ""


@dataclass(frozen=True)
class Dashboard:
    """A dashboard: rows of panels under headings.

    `uid` stays the same for ever, so that a new dashboard takes the old one's place.
    """

    uid: str
    title: str
    description: str
    rows: tuple[tuple[str, tuple[Panel, ...]], ...]

    def expressions(self) -> Iterator[tuple[str, str]]:
        """Panel's title and expression, of each query."""
        for _, panels in self.rows:
            for panel in panels:
                for expression, _ in panel.queries:
                    yield panel.title, expression


def render(what: Dashboard) -> dict[str, Any]:
    """The dashboard as Grafana imports it."""
    made = (
        dashboard.Dashboard(what.title)
        .uid(what.uid)
        .description(what.description)
        .tags(["cellblock", "slurm"])
        .refresh("30s")
        .time("now-6h", "now")
        .timezone(common.TimeZoneBrowser)
        .with_variable(dashboard.DatasourceVariable("datasource").label("Prometheus").type("prometheus"))
        .with_variable(
            dashboard.QueryVariable("instance")
            .label("Cluster")
            .query("label_values(cellblock_slurmctld_up, instance)")
            .datasource(_SOURCE)
            .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
            .sort(VariableSort.ALPHABETICAL_ASC)
            .multi(True)
            .include_all(True)
        )
    )
    for heading, panels in what.rows:
        made = made.with_row(dashboard.Row(heading))
        for panel in panels:
            made = made.with_panel(_panel(panel))
    document: dict[str, Any] = json.loads(JSONEncoder(sort_keys=True).encode(made.build()))
    return document


def _panel(panel: Panel) -> Any:
    made: Any
    if panel.kind == "number":
        made = (
            stat.Panel().height(4).reduce_options(common_builders.ReduceDataOptions().calcs(["lastNotNull"]))
        )
    elif panel.kind == "bars":
        made = (
            bargauge.Panel()
            .height(8)
            .orientation(common.VizOrientation.HORIZONTAL)
            .reduce_options(common_builders.ReduceDataOptions().calcs(["lastNotNull"]))
        )
    elif panel.kind == "table":
        made = table.Panel().height(8)
    else:
        made = timeseries.Panel().height(8).fill_opacity(10.0)
        if panel.kind == "stacked":
            made = made.stacking(common_builders.StackingConfig().mode(StackingMode("normal"))).fill_opacity(
                40.0
            )
    made = made.title(panel.title).description(panel.description).unit(panel.unit)
    made = made.span(min(panel.width, _WIDTH)).datasource(_SOURCE)
    for number, (expression, legend) in enumerate(panel.queries):
        query = prometheus.Dataquery().expr(expression).legend_format(legend).ref_id(chr(ord("A") + number))
        if panel.kind in ("bars", "table"):
            query = query.instant().format("table" if panel.kind == "table" else "time_series")
        made = made.with_target(query)
    return made
