# SPDX-License-Identifier: Apache-2.0
"""A hostile registry: where it may send us, what it gets to know, and what of an answer is anybody's."""

from __future__ import annotations

import http.client
import shutil
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.enroot.registry.conftest import PATH, Client, Stock, filled
from tests.enroot.registry.images import OCI_MANIFEST, Blob, Pusher, make_image
from tests.integration.registry import PASSWORD, USER, running_registry
from tests.integration.registry_proxy import Fault, Proxy

BLOBS = "GET /v2/.*/blobs/"


def far(host: str) -> str:
    """The same place under a name that is no loopback's."""
    return host.replace("127.0.0.1", "0.0.0.0")


@pytest.mark.parametrize("kind", ["manifests", "blobs"])
@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "localhost", "127.1", "2130706433", "[::1]", "169.254.169.254", "[::ffff:127.0.0.1]"],
)
def test_a_redirect_to_this_machine(
    client: Client, stock: Stock, proxy: Proxy, proxies: Callable[[str], Proxy], kind: str, address: str
) -> None:
    """What listens here trusts who is here."""
    inside = proxies(stock.host)
    port = inside.host.partition(":")[2]
    location = f"http://{address}:{port}/v2/{PATH}/manifests/v1"
    proxy.faults.append(Fault(f"GET /v2/.*/{kind}/", times=99, status=302, headers={"Location": location}))
    text = client.error(f"docker://{far(proxy.host)}/{PATH}:v1", ENROOT_ALLOW_HTTP="yes")
    assert "an address of this machine or of what looks after it" in text
    assert inside.count("") == 0


def test_a_token_server_on_this_machine(
    client: Client, stock: Stock, proxy: Proxy, proxies: Callable[[str], Proxy]
) -> None:
    inside = proxies(stock.host)
    client.credentials(f"machine {far(proxy.host)} login ada password sesame\n")
    realm = f'Bearer realm="http://{inside.host}/token",service="x"'
    proxy.faults.append(Fault("", times=99, status=401, headers={"WWW-Authenticate": realm}))
    text = client.error(f"docker://{far(proxy.host)}/{PATH}:v1", ENROOT_ALLOW_HTTP="yes")
    assert "is an address of this machine" in text
    assert inside.count("") == 0


def test_an_address_of_a_layer_on_this_machine(
    client: Client, stock: Stock, proxies: Callable[[str], Proxy]
) -> None:
    """Images name up to four; their author need not run the registry."""
    inside, image = proxies(stock.host), make_image((3000,), variant="v7")
    pusher = Pusher(f"http://{stock.host}", "team/foreign")
    pusher.blob(image.config)
    lines = f'{{"schemaVersion": 2, "mediaType": "{OCI_MANIFEST}", "config": '
    kind = "application/vnd.oci.image.layer.nondistributable.v1.tar+gzip"
    layer = image.layers[0].descriptor | {"mediaType": kind, "urls": [f"http://{inside.host}/admin"]}
    text = f'{lines}{image.config.descriptor}, "layers": [{layer}]}}'.replace("'", '"')
    pusher.manifest(Blob(OCI_MANIFEST, text.encode()), "inside")
    said = client.error(f"docker://{far(stock.host)}/team/foreign:inside", ENROOT_ALLOW_HTTP="yes")
    assert "it is an address of this machine, and the registry is not" in said
    assert inside.count("") == 0


def test_what_is_anybodys(client: Client, stock: Stock, proxy: Proxy) -> None:
    """Without a password, with a token for anybody, and with one that took a password."""
    for uses, password, anonymous in (
        (None, None, True),
        (99, None, True),
        (99, "Basic YWRhOnNlc2FtZQ==", False),
    ):
        proxy.uses_of_a_token, proxy.password = uses, password
        if password:
            client.credentials(f"machine {proxy.host} login {USER} password {PASSWORD}\n")
        fetched = client.fetch(f"{proxy.host}/{PATH}:v1")
        assert {each["anonymous"] for each in (fetched.image, *fetched.layers)} == {anonymous}


def test_a_mirror_that_took_a_password_gave_nothing_of_it(
    client: Client, stock: Stock, proxies: Callable[[str], Proxy]
) -> None:
    """Half of a layer, then a broken connection; the registry, which asks for nothing, gives the rest."""
    mirror = proxies(stock.host)
    mirror.uses_of_a_token, mirror.password = 99, "Basic YWRhOnNlc2FtZQ=="
    client.credentials(f"machine {mirror.host} login {USER} password {PASSWORD}\n")
    mirror.faults.append(Fault(BLOBS + stock.image.layers[1].digest, times=99, drop_download=20_000))
    client.registries(
        f'[[registry]]\nlocation = "{stock.host}"\n[[registry.mirror]]\nlocation = "{mirror.host}"\n'
    )
    fetched = client.fetch(f"{stock.host}/{PATH}:v1", ENROOT_TRANSFER_RETRIES="1")
    assert mirror.count(BLOBS) > 1
    assert not any(each["anonymous"] for each in (fetched.image, *fetched.layers))


# -- certificates of clients ---------------------------------------------------------------------


@dataclass
class Guard:
    """A registry behind TLS that knows its clients by their certificates, and who came."""

    host: str
    folder: Path
    came: list[bool] = field(default_factory=list)


@pytest.fixture
def guard(stock: Stock, tmp_path: Path) -> Iterator[Guard]:
    if not shutil.which("openssl"):
        pytest.skip("openssl is not installed: `python3 build.py test` installs it")
    new = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        "-addext",
        "subjectAltName=IP:127.0.0.1",
    ]
    for name in ("server", "client"):
        made = ["-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.cert"]
        subprocess.run([*new, *made], cwd=tmp_path, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.cert", tmp_path / "server.key")
    context.load_verify_locations(tmp_path / "client.cert")
    context.verify_mode = ssl.CERT_OPTIONAL

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            pass

        def do_GET(self) -> None:
            assert isinstance(self.connection, ssl.SSLSocket)
            found.came.append(bool(self.connection.getpeercert()))
            upstream = http.client.HTTPConnection(stock.host, timeout=30)
            upstream.request(self.command, self.path, headers={"Accept": self.headers.get("Accept", "*/*")})
            answer = upstream.getresponse()
            data = answer.read()
            self.send_response_only(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in ("connection", "transfer-encoding"):
                    self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        def do_HEAD(self) -> None:
            self.do_GET()

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    found = Guard(f"127.0.0.1:{server.server_address[1]}", tmp_path)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield found
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("shown", [False, True])
def test_a_clients_certificate_says_who_asks(client: Client, stock: Stock, guard: Guard, shown: bool) -> None:
    folder = Path("/etc/containers/certs.d", guard.host)
    try:
        folder.mkdir(parents=True)
    except PermissionError:
        pytest.skip("needs root, to write below /etc/containers")
    try:
        shutil.copy(guard.folder / "server.cert", folder / "ca.crt")
        if shown:
            shutil.copy(guard.folder / "client.cert", folder / "client.cert")
            shutil.copy(guard.folder / "client.key", folder / "client.key")
        fetched = client.fetch(f"{guard.host}/{PATH}:v1")
        assert fetched.is_of(stock.image)
        assert set(guard.came) == {shown}
        assert {each["anonymous"] for each in (fetched.image, *fetched.layers)} == {not shown}
    finally:
        shutil.rmtree(folder)


def test_parts_of_a_registry_with_a_password(client: Client, tmp_path: Path) -> None:
    """Basic, at once for all: nothing of it is anybody's."""
    with running_registry(tmp_path / "private", password=True) as registry:
        stock = filled(registry, f"http://{USER}:{PASSWORD}@{registry.host}")
        client.credentials(f"machine {registry.host} login {USER} password {PASSWORD}\n")
        fetched = client.fetch(f"{registry.host}/{PATH}:v1")
        assert fetched.is_of(stock.image)
        assert not any(each["anonymous"] for each in (fetched.image, *fetched.layers))
