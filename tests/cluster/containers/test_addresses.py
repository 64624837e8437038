# SPDX-License-Identifier: Apache-2.0
"""What containers have in /etc/hosts, so that they find one that ended."""

from __future__ import annotations

from typing import cast

import docker

from cellblock.cluster.engine.addresses import free_addresses, hosts_for, hosts_label, known_address
from cellblock.cluster.engine.container_specs import LABEL_ADDRESS, LABEL_HOSTS, network_name
from tests.cluster.fake_engine import FakeEngine

_PLACES = {"controller": "10.9.8.16", "login": "10.9.8.17", "accounting": "10.9.8.18"}


def test_slurmctld_finds_slurmdbd_when_that_is_gone() -> None:
    assert hosts_for("controller", _PLACES) == {"accounting": "10.9.8.18"}
    assert hosts_for("login", _PLACES) == {}
    # Docker gives no addresses.
    assert hosts_for("controller", dict.fromkeys(_PLACES, "")) == {}


def test_all_find_both_controllers() -> None:
    two = {**_PLACES, "controller-2": "10.9.8.19"}
    both = {"controller": "10.9.8.16", "controller-2": "10.9.8.19"}
    assert hosts_for("login", two) == both
    assert hosts_for("controller-2", two) == {**both, "accounting": "10.9.8.18"}


def test_an_address_that_others_have_written_down_stays_its_hosts() -> None:
    engine = FakeEngine()
    engine.networks.create(network_name("test"), driver="bridge", labels={})
    labels = {LABEL_ADDRESS: "10.9.8.16", LABEL_HOSTS: hosts_label({"accounting": "10.9.8.17"})}
    engine.containers.create("image", name="cellblock-test-controller", labels=labels)
    client, there = cast(docker.DockerClient, engine), engine.made
    # slurmdbd's container is not there, and a worker that is new does not get its place.
    assert next(free_addresses(client, "test", "podman", there)) == "10.9.8.18"  # type: ignore[arg-type]
    assert known_address("accounting", there) == "10.9.8.17"  # type: ignore[arg-type]
    assert known_address("worker-1", there) == ""  # type: ignore[arg-type]
