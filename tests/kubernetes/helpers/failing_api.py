# SPDX-License-Identifier: Apache-2.0
"""Makes Kubernetes' API silent or failing for one pod only; kubelets and all others reach it as before."""

from __future__ import annotations

import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from cellblock.bench.harness.real_kubernetes import HOST
from tests.kubernetes.helpers.kubernetes import Kubernetes
from tests.node_pods.http_server import serving

# Of the program that starts a Kubernetes: the Service of the API, and where the API itself listens.
_SERVICE = "10.96.0.1"
_PORT = "16443"


@contextmanager
def _rule(*rule: str) -> Iterator[None]:
    table, chain, *rest = rule
    subprocess.run(["iptables", "-t", table, "-I", chain, *rest], check=True)
    try:
        yield
    finally:
        subprocess.run(["iptables", "-t", table, "-D", chain, *rest], check=True)


@contextmanager
def api_that_is_silent(_kubernetes: Kubernetes, pod: str) -> Iterator[None]:
    """What the pod with the address `pod` sends to the API is lost."""
    with _rule("filter", "INPUT", "-s", pod, "-p", "tcp", "--dport", _PORT, "-j", "DROP"):
        yield


@contextmanager
def api_that_answers_500(kubernetes: Kubernetes, pod: str) -> Iterator[None]:
    """Another server, whose certificate is as good, answers the pod with the address `pod`."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    pki = kubernetes.folder / "pki"
    tls.load_cert_chain(pki / "apiserver.crt", pki / "apiserver.key")
    with serving(lambda *_request: (500, b'{"message": "the test says so"}'), HOST, tls) as url:
        to = f"{HOST}:{url.rpartition(':')[2]}"
        there = ("-s", pod, "-d", _SERVICE, "-p", "tcp", "--dport", "443")
        with _rule("nat", "PREROUTING", *there, "-j", "DNAT", "--to-destination", to):
            yield
