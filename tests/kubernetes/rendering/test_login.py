# SPDX-License-Identifier: Apache-2.0
"""How a cloud's load balancer of the login nodes is told what it is to be, and whom it lets in."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from cellblock.errors import DefinitionError
from tests import documented
from tests.kubernetes.helpers.rendered import FILE, found, rendered
from tests.kubernetes_schemas import check

_KINDS = "type: LoadBalancer, replicas"


def test_a_load_balancer_has_its_annotations_and_networks(tmp_path: Path) -> None:
    (block,) = documented.blocks_for("kubernetes.md", "test_a_load_balancer_has_its_annotations_and_networks")
    file = yaml.safe_load(FILE)
    file["kubernetes"]["login"] = yaml.safe_load(block.text)["kubernetes"]["login"]
    service = found(rendered(tmp_path, yaml.safe_dump(file)), "Service", "login")
    check(service)
    assert service["metadata"]["annotations"]["networking.gke.io/load-balancer-type"] == "Internal"
    assert "cellblock.org/cluster-file" in service["metadata"]["annotations"]
    assert service["spec"]["loadBalancerSourceRanges"] == ["10.0.0.0/8"]


def test_without_them_the_service_has_none(tmp_path: Path) -> None:
    service = found(rendered(tmp_path), "Service", "login")
    assert "loadBalancerSourceRanges" not in service["spec"]
    assert {key.partition("/")[0] for key in service["metadata"]["annotations"]} == {"cellblock.org"}


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ("type: NodePort, source_ranges: [10.0.0.0/8]", "source_ranges: goes with `type: LoadBalancer`"),
        ("type: LoadBalancer, source_ranges: [10.0.0.1/8]", "source_ranges.0: '10.0.0.1/8' is no network"),
        ("type: LoadBalancer, annotations: {a b: c}", "'a b' is no key of a label"),
        ("type: LoadBalancer, annotations: {internal: true}", "kubernetes.login.annotations.internal"),
        ('type: LoadBalancer, annotations: {a: "b\\nc"}', "is no value of an annotation"),
    ],
)
def test_what_cannot_be_is_refused(keys: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(DefinitionError) as refused:
        rendered(tmp_path, FILE.replace(_KINDS, f"{keys}, replicas"))
    assert said in str(refused.value)
