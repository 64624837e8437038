# SPDX-License-Identifier: Apache-2.0
"""Enforces rendered NetworkPolicies by iptables, as Kubernetes defines them, where no network plugin does.

A pod that a policy selects, for a direction, is open for what a policy of that direction allows. Connections
that stand, and what a pod answers, pass. Only pods of one namespace, and IPv4.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import IPv4Network
from typing import Any

_CHAIN = "CELLBLOCK-POLICY"
_CHAINS = ("FORWARD", "INPUT")


@dataclass(frozen=True)
class Address:
    """A pod's labels and address."""

    labels: Mapping[str, str]
    ip: str


def addresses(items: Iterable[Mapping[str, Any]]) -> list[Address]:
    """The pods of a PodList that have an address."""
    return [
        Address(one["metadata"]["labels"], one["status"]["podIP"])
        for one in items
        if one["status"].get("podIP") and one["status"]["phase"] == "Running"
    ]


def rules(policies: Iterable[Mapping[str, Any]], pods: list[Address]) -> str:
    """What iptables-restore takes."""
    specs = [one["spec"] for one in policies]
    chains, entries, checks = [f":{_CHAIN} - [0:0]"], [], []
    for number, pod in enumerate(pods):
        for direction, here, there, peers in (("Egress", "-s", "-d", "to"), ("Ingress", "-d", "-s", "from")):
            chosen = [
                spec
                for spec in specs
                if direction in spec["policyTypes"] and _selects(spec["podSelector"], pod)
            ]
            if not chosen:
                continue
            chain = f"CELLBLOCK-{direction}-{number}"
            chains.append(f":{chain} - [0:0]")
            entries.append(f"-A {_CHAIN} {here} {pod.ip} -j {chain}")
            for spec in chosen:
                for rule in spec.get(direction.lower(), ()):
                    checks += [
                        f"-A {chain} {match} -j RETURN" for match in _matches(rule, peers, there, pods)
                    ]
            checks.append(f"-A {chain} -j REJECT")
    first = f"-A {_CHAIN} -m conntrack --ctstate ESTABLISHED,RELATED -j RETURN"
    return "\n".join(["*filter", *chains, first, *entries, *checks, "COMMIT", ""])


def _selects(selector: Mapping[str, Any], pod: Address) -> bool:
    assert set(selector) <= {"matchLabels"}, selector
    return selector.get("matchLabels", {}).items() <= pod.labels.items()


def _matches(rule: Mapping[str, Any], peers: str, there: str, pods: list[Address]) -> Iterator[str]:
    ports = [_port(one) for one in rule["ports"]] if "ports" in rule else [""]
    for other in _others(rule[peers], there, pods) if peers in rule else [""]:
        for port in ports:
            yield f"{other} {port}".strip()


def _others(peers: Iterable[Mapping[str, Any]], there: str, pods: list[Address]) -> Iterator[str]:
    for peer in peers:
        if "ipBlock" in peer:
            block = peer["ipBlock"]
            if ":" not in block["cidr"]:
                left = [IPv4Network(block["cidr"])]
                for closed in map(IPv4Network, block.get("except", ())):
                    left = [part for one in left for part in _without(one, closed)]
                yield from (f"{there} {one}" for one in left)
        elif "namespaceSelector" in peer:
            assert peer == {"namespaceSelector": {}}, peer
            yield ""
        else:
            yield from (f"{there} {one.ip}" for one in pods if _selects(peer["podSelector"], one))


def _without(network: IPv4Network, closed: IPv4Network) -> Iterator[IPv4Network]:
    """The parts of a network that are outside of another one."""
    if closed.subnet_of(network):
        yield from network.address_exclude(closed)
    elif not network.subnet_of(closed):
        yield network


def _port(one: Mapping[str, Any]) -> str:
    last = f":{one['endPort']}" if "endPort" in one else ""
    return f"-p {one['protocol'].lower()} --dport {one['port']}{last}"


@contextmanager
def enforced(policies: Iterable[Mapping[str, Any]], pods: list[Address]) -> Iterator[None]:
    """Those policies hold for these pods while the block runs."""
    text = rules(policies, pods)
    subprocess.run(["iptables-restore", "--noflush"], input=text, text=True, check=True)
    try:
        for chain in _CHAINS:
            subprocess.run(["iptables", "-I", chain, "-j", _CHAIN], check=True)
        yield
    finally:
        for chain in _CHAINS:
            subprocess.run(["iptables", "-D", chain, "-j", _CHAIN], check=False)
        made = [line[1:].split()[0] for line in text.splitlines() if line.startswith(":")]
        for verb in ("-F", "-X"):
            for chain in made:
                subprocess.run(["iptables", verb, chain], check=False)
