# SPDX-License-Identifier: Apache-2.0
"""Where a repository is: TLS and its authorities, proxies, plain http, and registries.conf."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.enroot.registry.conftest import PATH, Client, Stock, filled
from tests.enroot.registry.images import Pusher, make_image
from tests.integration.registry import running_registry
from tests.integration.registry_proxy import Fault, Proxy


def everywhere(stock: Stock) -> str:
    """The stock under a name that is no loopback's, though it is one."""
    return stock.host.replace("127.0.0.1", "0.0.0.0")


# -- TLS -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Trusted:
    stock: Stock
    authority: Path


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trusted]:
    """A registry with a certificate of an authority that is nobody's."""
    if not shutil.which("openssl"):
        pytest.skip("openssl is not installed: `python3 build.py test` installs it")
    folder = tmp_path_factory.mktemp("tls")
    authority = folder / "ca.crt"

    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)

    new = ["req", "-newkey", "rsa:2048", "-nodes"]
    openssl(*new, "-x509", "-days", "2", "-subj", "/CN=Own CA", "-keyout", "ca.key", "-out", "ca.crt")
    openssl(*new, "-subj", "/CN=registry", "-keyout", "key.pem", "-out", "request.pem")
    (folder / "extensions").write_text("subjectAltName=IP:127.0.0.1,IP:0.0.0.0\n")
    signed = ["-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-extfile", "extensions", "-days", "2"]
    openssl("x509", "-req", "-in", "request.pem", *signed, "-out", "certificate.pem")
    pair = (folder / "certificate.pem", folder / "key.pem")
    with running_registry(folder / "registry", certificate=pair) as registry:
        yield Trusted(filled(registry, f"https://{registry.host}"), authority)


def test_an_own_authority(client: Client, tls: Trusted) -> None:
    uri = f"{everywhere(tls.stock)}/{PATH}:v1"
    assert client.fetch(uri, SSL_CERT_FILE=str(tls.authority)).is_of(tls.stock.image)


def test_an_unknown_authority(client: Client, tls: Trusted) -> None:
    host = everywhere(tls.stock)
    text = client.error(f"docker://{host}/{PATH}:v1")
    assert text.startswith(
        f"{host}: could not get the manifest of {host}/{PATH}:v1: its certificate is not trusted: "
    )
    assert f"/etc/containers/certs.d/{host}/ca.crt" in text


@pytest.mark.parametrize("of", ["containers", "docker"])
def test_an_authority_for_one_registry(client: Client, tls: Trusted, of: str) -> None:
    host = everywhere(tls.stock)
    folder = Path("/etc", of, "certs.d", host)
    try:
        folder.mkdir(parents=True)
    except PermissionError:
        pytest.skip("needs root, to write below /etc/containers")
    try:
        shutil.copy(tls.authority, folder / "ca.crt")
        assert client.digest(f"{host}/{PATH}:v1") == tls.stock.image.digest
    finally:
        shutil.rmtree(folder)


def test_an_insecure_registry_may_have_any_certificate(client: Client, tls: Trusted) -> None:
    client.registries(f'[[registry]]\nlocation = "{everywhere(tls.stock)}"\ninsecure = true\n')
    assert client.digest(f"{everywhere(tls.stock)}/{PATH}:v1") == tls.stock.image.digest


def test_a_file_of_authorities_that_is_missing(client: Client, tls: Trusted) -> None:
    text = client.error(f"docker://{everywhere(tls.stock)}/{PATH}:v1", SSL_CERT_FILE="/nowhere")
    assert "a file of certificates cannot be used" in text
    assert "SSL_CERT_FILE" in text


def test_tls_where_plain_http_was_asked_for(client: Client, tls: Trusted) -> None:
    text = client.error(f"docker://{tls.stock.host}/{PATH}:v1", ENROOT_ALLOW_HTTP="yes")
    assert "400" in text


# -- plain http and proxies ----------------------------------------------------------------------


def test_plain_http_is_for_whom_it_is_allowed(client: Client, stock: Stock) -> None:
    uri = f"{everywhere(stock)}/{PATH}:v1"
    text = client.error(f"docker://{uri}")
    assert text.startswith(
        f"{everywhere(stock)}: could not get the manifest of {uri}: it speaks plain http, not TLS"
    )
    assert "insecure = true for it in registries.conf, or ENROOT_ALLOW_HTTP=yes for all" in text
    assert client.digest(uri, ENROOT_ALLOW_HTTP="yes") == stock.image.digest
    client.registries(f'[[registry]]\nlocation = "{everywhere(stock)}"\ninsecure = true\n')
    assert client.fetch(uri).is_of(stock.image)


def test_no_password_goes_over_plain_http_unasked(
    client: Client, stock: Stock, proxies: Callable[[str], Proxy]
) -> None:
    """The registry is on loopback, its token server is not, by its name."""
    proxy = proxies(stock.host)
    client.credentials(f"machine {proxy.host} login ada password sesame")
    realm = f'Bearer realm="http://{proxy.host.replace("127.0.0.1", "0.0.0.0")}/token",service="x"'
    proxy.faults.append(Fault("manifests", times=99, status=401, headers={"WWW-Authenticate": realm}))
    text = client.error(f"docker://{proxy.host}/{PATH}:v1")
    assert (
        f"it asks for credentials to be sent to 0.0.0.0:{proxy.host.partition(':')[2]} over plain http"
        in text
    )
    assert proxy.count("/token") == 0


@pytest.mark.parametrize("by_configuration", [False, True], ids=["environment", "enroot.conf"])
def test_a_proxy_is_used(client: Client, stock: Stock, proxy: Proxy, by_configuration: bool) -> None:
    env = {"http_proxy": f"http://{proxy.host}", "ENROOT_ALLOW_HTTP": "yes"}
    if by_configuration:
        lines = "".join(f"{key} {value}\n" for key, value in env.items())
        env = {"ENROOT_SYSCONF_PATH": str(client.write("etc/enroot.conf", lines).parent)}
    assert client.fetch(f"registry.example/{PATH}:v1", **env).is_of(stock.image)
    assert proxy.count("manifests") == 1
    proxy.log.clear()
    assert client.digest(f"{stock.host}/{PATH}:v1", **env) == stock.image.digest
    assert proxy.count(".") == 0, "loopback needs none"


@pytest.mark.parametrize(
    ("variables", "proxied"),
    [
        ({}, True),
        ({"no_proxy": "images.invalid"}, False),
        ({"NO_PROXY": "a.example,.invalid"}, False),
        ({"no_proxy": "*"}, False),
        ({"no_proxy": "other.invalid"}, True),
    ],
)
def test_hosts_that_need_no_proxy(client: Client, variables: dict[str, str], proxied: bool) -> None:
    for name in ("https_proxy", "HTTPS_PROXY", "all_proxy"):
        text = client.error("docker://images.invalid/a/b", **{name: "http://127.0.0.1:1", **variables})
        assert ("no connection" if proxied else "no host of this name is known") in text
    lines = "".join(f"{key.lower()} {value}\n" for key, value in variables.items())
    folder = client.write("etc/enroot.conf", f"https_proxy http://127.0.0.1:1\n{lines}").parent
    text = client.error("docker://images.invalid/a/b", ENROOT_SYSCONF_PATH=str(folder))
    assert ("no connection" if proxied else "no host of this name is known") in text


def test_a_proxy_that_nobody_knows(client: Client) -> None:
    env = {"https_proxy": "http://proxy.invalid:3128"}
    assert "the proxy's name is not known" in client.error("docker://registry.example/a", **env)


# -- registries.conf -----------------------------------------------------------------------------


def test_a_mirror_is_asked_first(client: Client, stock: Stock, proxies: Callable[[str], Proxy]) -> None:
    mirror, own = proxies(stock.host), proxies(stock.host)
    client.registries(
        f'[[registry]]\nprefix = "images.example/team"\nlocation = "{own.host}/team"\n'
        f'[[registry.mirror]]\nlocation = "{mirror.host}/team"\n'
    )
    assert client.fetch("images.example/team/app:v1").is_of(stock.image)
    assert own.count(".") == 0
    mirror.faults.append(Fault("manifests", times=99, status=404))
    assert client.fetch("images.example/team/app:v1").is_of(stock.image)
    own.faults.append(Fault("manifests", times=99, status=404))
    text = client.error("docker://images.example/team/app:v1")
    assert text.startswith(f"{own.host}: could not get the manifest of images.example/team/app:v1: 404")
    assert f"\n  its mirror {mirror.host}: could not get" in text


def test_a_mirror_that_lost_a_layer(client: Client, stock: Stock, proxies: Callable[[str], Proxy]) -> None:
    mirror, own = proxies(stock.host), proxies(stock.host)
    client.registries(
        f'[[registry]]\nlocation = "images.example"\n[[registry.mirror]]\nlocation = "{mirror.host}"\n'
        f'[[registry.mirror]]\nlocation = "{own.host}"\n'
    )
    lost = f"blobs/{stock.image.layers[0].digest}"
    mirror.faults.append(Fault(lost, times=99, status=404))
    assert client.fetch("images.example/team/app:v1").is_of(stock.image)
    assert own.count(lost) == 1


@pytest.mark.parametrize("rule", ["mirror-by-digest-only = true\n{}", '{}pull-from-mirror = "digest-only"\n'])
def test_a_mirror_for_digests_alone(client: Client, stock: Stock, proxy: Proxy, rule: str) -> None:
    mirror = f'[[registry.mirror]]\nlocation = "{proxy.host}"\n'
    client.registries(f'[[registry]]\nlocation = "{stock.host}"\n{rule.format(mirror)}')
    client.digest(f"{stock.host}/{PATH}:v1")
    assert proxy.count(".") == 0
    client.digest(f"{stock.host}/{PATH}@{stock.image.digest}")
    assert proxy.count("manifests") == 1


def test_a_blocked_registry(client: Client) -> None:
    path = client.registries('[[registry]]\nprefix = "*.example"\nblocked = true\n')
    text = client.error("docker://images.example/a/b")
    assert f'images.example/a/b:latest: {path}:1 blocks "*.example"' in text


def test_a_prefix_for_all_hosts_of_a_domain(client: Client, stock: Stock) -> None:
    client.registries(
        f'[[registry]]\nprefix = "*.lab.invalid"\nlocation = "{stock.host}/team"\n'
        '[[registry]]\nprefix = "closed.lab.invalid"\nblocked = true\n'
    )
    for host in ("a.lab.invalid", "b.a.lab.invalid"):
        assert client.digest(f"{host}/app:v1") == stock.image.digest
    # The longer of two decides, and a wildcard with as many letters is as long as any.
    assert "blocks" in client.error("docker://closed.lab.invalid/app:v1")
    # With another port or without the dot it is another host.
    for host in ("lab.invalid", "xlab.invalid", "a.lab.invalid.other.invalid"):
        assert "no host of this name is known" in client.error(f"docker://{host}/app:v1")


def test_the_longest_prefix_decides_and_later_files_replace(client: Client, stock: Stock) -> None:
    client.registries('[[registry]]\nlocation = "a.example"\nblocked = true\n')
    client.write(
        ".config/containers/registries.conf.d/10-own.conf",
        f'[[registry]]\nprefix = "a.example/x"\nlocation = "{stock.host}/team"\n',
    )
    assert client.digest("a.example/x/app:v1") == stock.image.digest
    assert "blocks" in client.error("docker://a.example/xy/app:v1")
    client.write(
        ".config/containers/registries.conf.d/20-own.conf",
        f'[[registry]]\nprefix = "a.example"\nlocation = "{stock.host}/team"\n',
    )
    assert client.digest("a.example/app:v1") == stock.image.digest


def test_docker_hub_through_a_mirror(client: Client, stock: Stock) -> None:
    image = Pusher(f"http://{stock.host}", "library/debian").image(make_image((10,)), "latest")
    client.registries(
        f'[[registry]]\nlocation = "docker.io"\n[[registry.mirror]]\nlocation = "{stock.host}"\n'
    )
    for uri in ("debian", "docker.io/debian", "index.docker.io/library/debian:latest", "docker.io#debian"):
        assert client.digest(uri) == image.digest


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('\n[[registry]]\nlocation = "x\n', ':3: text without the " at its end'),
        ("[[registry]]\ninsecure = true\n", ":1: this [[registry]] has neither prefix nor location"),
        (
            '[[registry]]\nlocation = "a"\ninsecure = "yes"\n',
            ":1: insecure of this entry must be true or false",
        ),
        ('[[registry]]\nlocation = "https://a"\n', ':1: location "https://a" has a scheme'),
        ('[[registry]]\nlocation = "/a"\n', ':1: location "/a" is no HOST[:PORT][/PATH]'),
        ('[[registry]]\nprefix = "*a"\n', ':1: prefix "*a" is no HOST[:PORT][/PATH] or *.DOMAIN'),
        ('[registries.search]\nregistries = ["a"]\n', "is version 1 of this file"),
        ('[[registry]]\nlocation = "a"\nlocation = "b"\n', ':3: "location" stands here a second time'),
        (
            '[[registry]]\nlocation = "a"\n\n[[registry.mirror]]\ninsecure = true\n',
            ":4: this mirror has no location",
        ),
    ],
)
def test_mistakes_name_their_line(client: Client, text: str, said: str) -> None:
    path = client.registries(text)
    found = client.error("docker://images.example/a/b")
    assert found.startswith(f"{path}:")
    assert said in found


def test_podmans_own_file_is_read(client: Client, stock: Stock) -> None:
    """What is in it besides, as a distribution ships it."""
    client.registries(
        "# comment\nunqualified-search-registries = [\"docker.io\", 'quay.io']\n"
        'short-name-mode="permissive"\n'
        'credential-helpers = [\n  "containers-auth.json", # first\n]\n'
        f'[[registry]]\nlocation = "{stock.host}"\nmirror = [{{ location = "127.0.0.1:1" }}]\n'
        '[aliases]\n  "debian" = "docker.io/library/debian"\n'
    )
    assert client.digest(f"{stock.host}/{PATH}:v1") == stock.image.digest
