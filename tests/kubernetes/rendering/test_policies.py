# SPDX-License-Identifier: Apache-2.0
"""Networks that a cluster file closes to jobs, and what the rendered NetworkPolicies let through."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from cellblock.errors import CellblockError
from tests.kubernetes.helpers.enforced_policies import Address, rules
from tests.kubernetes.helpers.rendered import FILE, rendered
from tests.kubernetes_schemas import VERSIONS, check

_CLOSED = FILE.replace(
    "  namespace: hpc\n", '  namespace: hpc\n  closed_to_jobs: [10.1.0.0/16, "fd12::/48"]\n'
)


def policies(folder: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(rendered(folder, _CLOSED)["network.yaml"]))


@pytest.mark.parametrize("component", ["worker", "login"])
def test_jobs_and_sessions_are_kept_out(component: str, tmp_path: Path) -> None:
    (policy,) = [one for one in policies(tmp_path) if one["metadata"]["name"] == component]
    blocks = {
        peer["ipBlock"]["cidr"]: peer["ipBlock"]["except"]
        for rule in policy["spec"]["egress"]
        for peer in rule.get("to", ())
        if "ipBlock" in peer
    }
    assert blocks["0.0.0.0/0"] == ["169.254.0.0/16", "10.1.0.0/16"]
    assert "fd12::/48" in blocks["::/0"]
    for version in VERSIONS:
        check(policy, version)


def test_what_the_tests_enforce_is_what_is_rendered(tmp_path: Path) -> None:
    labels = {"app.kubernetes.io/name": "cellblock", "app.kubernetes.io/instance": "pods"}
    pods = [
        Address({**labels, "app.kubernetes.io/component": component}, f"10.88.0.{number}")
        for number, component in enumerate(("worker", "database", "accounting"))
    ]
    lines = rules(policies(tmp_path), pods).splitlines()
    into_database = [line for line in lines if line.startswith("-A CELLBLOCK-Ingress-1 ")]
    assert into_database == [
        "-A CELLBLOCK-Ingress-1 -s 10.88.0.2 -p tcp --dport 3306 -j RETURN",
        "-A CELLBLOCK-Ingress-1 -j REJECT",
    ]
    out_of_jobs = "\n".join(line for line in lines if line.startswith("-A CELLBLOCK-Egress-0 "))
    assert "-d 10.0.0.0/16 -j RETURN" in out_of_jobs
    assert "-d 10.1." not in out_of_jobs
    assert "-d 169.254" not in out_of_jobs


def test_what_is_no_network_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CellblockError, match=r"closed_to_jobs.*'10\.1\.2\.3/16' is no network"):
        rendered(tmp_path, _CLOSED.replace("10.1.0.0/16", "10.1.2.3/16"))
