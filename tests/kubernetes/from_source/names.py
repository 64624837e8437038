# SPDX-License-Identifier: Apache-2.0
"""Writes names of Services and of their pods for dnsmasq, the cluster's name server; start.py starts it.

usage: names.py KUBECTL KUBECONFIG HOSTS-FILE DNSMASQ-PID
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_DOMAIN = "svc.cluster.local"
_PAUSE_S = 1


def lines(items: list[dict[str, Any]]) -> Iterator[str]:
    """Lines of hosts(5) for Services and Endpoints."""
    services = {_name(one): one["spec"] for one in items if one["kind"] == "Service"}
    for name, spec in services.items():
        if spec.get("clusterIP", "None") != "None":
            yield f"{spec['clusterIP']} {name}"
    for one in items:
        spec = services.get(_name(one), {})
        if one["kind"] != "Endpoints" or spec.get("clusterIP") != "None":
            continue
        kinds = ("addresses", *(("notReadyAddresses",) if spec.get("publishNotReadyAddresses") else ()))
        for subset in one.get("subsets", ()):
            for address in (each for kind in kinds for each in subset.get(kind, ())):
                own = [f"{address['hostname']}.{_name(one)}"] if "hostname" in address else []
                yield " ".join([address["ip"], *own, _name(one)])


def _name(item: dict[str, Any]) -> str:
    return f"{item['metadata']['name']}.{item['metadata']['namespace']}.{_DOMAIN}"


def main(kubectl: str, configuration: str, hosts: Path, server: int) -> None:
    """Look once a second, and tell dnsmasq what changed."""
    ask = (kubectl, f"--kubeconfig={configuration}", "get", "services,endpoints", "-A", "--output=json")
    while True:
        done = subprocess.run(ask, capture_output=True, text=True, check=False)
        found = json.loads(done.stdout)["items"] if not done.returncode else []
        text = "".join(f"{line}\n" for line in sorted(lines(found)))
        # There is always the API's own.
        if text and text != hosts.read_text():
            new = hosts.with_suffix(".new")
            new.write_text(text)
            new.replace(hosts)
            os.kill(server, signal.SIGHUP)
        time.sleep(_PAUSE_S)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]))
