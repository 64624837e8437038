# SPDX-License-Identifier: Apache-2.0
"""Makes objects for the operator of Prometheus and for Grafana, in files of their own.

Not every Kubernetes knows these kinds of objects, so a site applies these files only where it does.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import yaml

from cellblock.kubernetes.description import Description
from cellblock.kubernetes.metadata import Object, labels, metadata
from cellblock.metrics.alert_rules import rules_file
from cellblock.metrics.dashboards import ALL
from cellblock.metrics.panels import render

# What Grafana's sidecar looks for, in its chart's own settings.
_DASHBOARD = {"grafana_dashboard": "1"}


def monitors(cluster: Description, interval: int) -> Iterator[Object]:
    """A PodMonitor and a PrometheusRule (monitoring.coreos.com/v1)."""
    yield {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PodMonitor",
        "metadata": metadata(cluster, "slurm", "metrics"),
        "spec": {
            "selector": {"matchLabels": labels(cluster, "metrics")},
            "podMetricsEndpoints": [{"port": "metrics", "path": "/metrics", "interval": f"{interval}s"}],
        },
    }
    rules = yaml.safe_load(rules_file().read_text(encoding="utf-8"))
    rules["groups"].append(_of_the_controllers_pod(cluster))
    yield {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": metadata(cluster, "slurm", "metrics"),
        "spec": rules,
    }


def _of_the_controllers_pod(cluster: Description) -> Object:
    """An alert on a configuration that is refused. kubelet counts how the probe that tells it fails.

    The metric is of kubelet's own endpoint, /metrics/probes: the exporter's pod has no way to know.
    """
    probe = (
        f'namespace="{cluster.place.namespace}",container="slurmctld",probe_type="Liveness",result="failed"'
    )
    return {
        "name": "cellblock.kubernetes",
        "rules": [
            {
                "alert": "CellblockConfigurationRefused",
                # The probe runs each half minute; one that was late fails, too.
                "expr": f"increase(prober_probe_total{{{probe}}}[5m]) > 3",
                "labels": {"severity": "warning"},
                "annotations": {
                    "summary": "slurmctld of {{ $labels.pod }} does not use its newest configuration",
                    "description": "`kubectl describe pod` and slurmctld's log say why; the one before stays "
                    "in use until the ConfigMap slurm-configuration is corrected.",
                },
            }
        ],
    }


def dashboards(cluster: Description) -> Iterator[Object]:
    """A ConfigMap for each dashboard."""
    for one in ALL:
        yield {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": metadata(cluster, f"dashboard-{one.uid}", "metrics", _DASHBOARD),
            "data": {f"{one.uid}.json": json.dumps(render(one), indent=2) + "\n"},
        }
