# SPDX-License-Identifier: Apache-2.0
"""Who asks: where that is looked for, what is sent to whom, and what is said when it is missing or wrong."""

from __future__ import annotations

import base64
import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.enroot.registry.conftest import PATH, Client, Stock, filled
from tests.enroot.registry.token_server import TokenServer, running_token_server
from tests.integration.registry import PASSWORD, USER, running_registry
from tests.integration.registry_proxy import Proxy

PAIR = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()


@pytest.fixture(scope="module")
def private(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stock]:
    """A registry that wants a password (basic)."""
    with running_registry(tmp_path_factory.mktemp("private"), password=True) as registry:
        yield filled(registry, f"http://{USER}:{PASSWORD}@{registry.host}")


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TokenServer]:
    with running_token_server(tmp_path_factory.mktemp("tokens"), USER, PASSWORD) as server:
        yield server


@pytest.fixture(scope="module")
def guarded(tokens: TokenServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stock]:
    """A registry that wants a token of `tokens`."""
    folder = tmp_path_factory.mktemp("guarded")
    with running_registry(folder / "open", storage=folder / "storage") as registry:
        stock = filled(registry, f"http://{registry.host}")
    with running_registry(folder / "guarded", storage=folder / "storage", auth=tokens.auth) as registry:
        yield Stock(registry, stock.image, stock.many, stock.variants, stock.index)


def machine(stock: Stock, password: str = PASSWORD) -> str:
    return f"machine {stock.host} login {USER} password {password}\n"


def test_basic(client: Client, private: Stock) -> None:
    client.credentials(machine(private))
    assert client.fetch(f"{private.host}/{PATH}:many").is_of(private.many)


@pytest.mark.parametrize("name", ["[::1]:{port}", "::1"])
def test_a_registry_of_an_address_with_colons(
    client: Client, stock: Stock, tmp_path: Path, name: str
) -> None:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError as error:
        pytest.skip(f"this machine has no IPv6: {error}")
    storage = stock.registry.storage
    with running_registry(
        tmp_path, password=True, read_only=True, storage=storage, address="[::1]"
    ) as registry:
        port = registry.host.rpartition(":")[2]
        client.credentials(f"machine {name.format(port=port)} login {USER} password {PASSWORD}\n")
        assert client.fetch(f"{USER}@{registry.host}/{PATH}:v1").is_of(stock.image)


def test_bearer(client: Client, guarded: Stock) -> None:
    client.credentials(machine(guarded))
    assert client.fetch(f"{guarded.host}/{PATH}:many").is_of(guarded.many)
    assert (
        client.digest(f"{guarded.host}/{PATH}:multi", "-a", "arm64") == guarded.variants["linux/arm64"].digest
    )


def test_credentials_of_the_token_servers_host(client: Client, guarded: Stock, tokens: TokenServer) -> None:
    client.credentials(f"machine {tokens.host} login {USER} password {PASSWORD}\n")
    assert client.digest(f"{guarded.host}/{PATH}:v1") == guarded.image.digest


def test_none_of_a_basic_registry(client: Client, private: Stock) -> None:
    text = client.error("digest", f"docker://{private.host}/{PATH}:v1")
    assert text.startswith(f"{private.host}: it wants a user and a password, and there are none\n")
    assert f"credentials for {private.host} were looked for in:" in text
    home = client.home
    for place in (
        f"{home}/.config/enroot/.credentials (not there)",
        f"{home}/.config/containers/auth.json (not there)",
        f"{home}/.docker/config.json (not there)",
    ):
        assert f"\n    - {place}" in text
    assert f'next: put "machine {private.host} login USER password PASSWORD" into ' in text


def test_none_of_a_token_server(client: Client, guarded: Stock, tokens: TokenServer) -> None:
    client.credentials(f"machine other.example login {USER} password {PASSWORD}\n")
    text = client.error(f"docker://{guarded.host}/{PATH}:v1")
    assert text.startswith(
        f"{guarded.host}: its token server {tokens.host} asks for credentials, and none were found"
    )
    assert f"credentials for {guarded.host} were looked for in:" in text


@pytest.mark.parametrize("kind", ["private", "guarded"])
def test_a_wrong_password(client: Client, kind: str, request: pytest.FixtureRequest) -> None:
    stock: Stock = request.getfixturevalue(kind)
    path = client.credentials(f"\n# mine\n{machine(stock, 'mellon')}")
    text = client.error(f"docker://{stock.host}/{PATH}:v1")
    assert f"does not accept {USER} and the secret from {path}, line 3, machine {stock.host}" in text


def test_a_right_that_is_missing(client: Client, guarded: Stock, tokens: TokenServer) -> None:
    client.credentials(machine(guarded))
    tokens.forbidden.add("secret/app")
    text = client.error(f"docker://{guarded.host}/secret/app:v1")
    assert text.startswith(f"{guarded.host}: could not get the manifest of {guarded.host}/secret/app:v1: 401")
    assert f"(asked as {USER}, from " in text
    assert "ask for the right to pull secret/app" in text


def test_a_password_that_a_program_prints(client: Client, private: Stock, tmp_path: Path) -> None:
    log = tmp_path / "log"
    client.write("bin/cloud-token", f'#!/bin/sh\nprintf "%s," "$@" >> {log}\necho {PASSWORD}\n', 0o700)
    client.credentials(machine(private, "$(cloud-token --region 'eu west' $REGION)"))
    env = {"REGION": "x;touch y"}
    assert client.digest(f"{private.host}/{PATH}:v1", **env) == private.image.digest
    assert log.read_text() == "--region,eu west,x;touch y,"


def test_a_password_from_the_environment(client: Client, private: Stock) -> None:
    client.credentials(machine(private, "${REGISTRY_SECRET}"))
    assert client.digest(f"{private.host}/{PATH}:v1", REGISTRY_SECRET=PASSWORD) == private.image.digest
    text = client.error("digest", f"docker://{private.host}/{PATH}:v1")
    assert f"(line 1, machine {private.host}: the variable REGISTRY_SECRET is not set)" in text


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("$(cat x | grep y)", 'its command has a "|", and runs without a shell'),
        ("$(cat `x`)", 'its command has a "`", and runs without a shell'),
        ("$(no-such-program)", "the program no-such-program is not installed"),
        ("$(false)", "false failed with status 1"),
        ("$(true)", "true printed nothing"),
    ],
)
def test_a_password_that_cannot_be_had(client: Client, private: Stock, command: str, said: str) -> None:
    client.credentials(machine(private, command))
    assert said in client.error("digest", f"docker://{private.host}/{PATH}:v1")


def test_programs_that_do_not_end(client: Client, private: Stock) -> None:
    uri = f"docker://{private.host}/{PATH}:v1"
    client.credentials(machine(private, "$(sleep 100)"))
    client.write("bin/docker-credential-vault", "#!/bin/sh\nexec > /dev/null\nexec sleep 100\n", 0o700)
    client.write(".docker/config.json", json.dumps({"credsStore": "vault"}))
    text = client.error("digest", uri, ENROOT_CONNECT_TIMEOUT="2")
    assert "sleep had no end after 2 s (ENROOT_CONNECT_TIMEOUT), and was ended" in text
    assert "docker-credential-vault had no end after 2 s, and was ended (ENROOT_CONNECT_TIMEOUT)" in text
    (client.home / ".docker/config.json").unlink()
    client.credentials(machine(private, "$(yes)"))
    assert "yes printed more than 1048576 bytes" in client.error("digest", uri)


def test_the_user_that_the_uri_names(client: Client, private: Stock) -> None:
    other = f"machine {private.host} login bob password mellon\n"
    client.credentials(other + machine(private))
    assert client.digest(f"{USER}@{private.host}/{PATH}:v1") == private.image.digest
    assert "does not accept bob" in client.error("digest", f"docker://{private.host}/{PATH}:v1")
    assert "there are none" in client.error("digest", f"docker://eve@{private.host}/{PATH}:v1")


def test_a_line_that_is_wrong_is_told(client: Client, private: Stock) -> None:
    client.credentials(f"machine {private.host}\nlogin {USER} mellon {PASSWORD}\n")
    text = client.error("digest", f"docker://{private.host}/{PATH}:v1")
    assert "(line 2: a word stands where machine, login or password belongs)" in text


def auths(stock: Stock, key: str = "", **entry: str) -> str:
    return json.dumps({"auths": {key or stock.host: entry or {"auth": PAIR}}})


@pytest.mark.parametrize(
    ("place", "variable"),
    [
        (".config/containers/auth.json", ""),
        (".docker/config.json", ""),
        ("elsewhere/auth.json", "REGISTRY_AUTH_FILE"),
        ("run/containers/auth.json", "XDG_RUNTIME_DIR"),
        ("docker/config.json", "DOCKER_CONFIG"),
    ],
)
def test_places_of_podman_and_docker(client: Client, private: Stock, place: str, variable: str) -> None:
    path = client.write(place, auths(private))
    value = {"XDG_RUNTIME_DIR": client.home / "run", "DOCKER_CONFIG": client.home / "docker"}.get(
        variable, path
    )
    env = {variable: str(value)} if variable else {}
    assert client.digest(f"{private.host}/{PATH}:v1", **env) == private.image.digest


@pytest.mark.parametrize("key", ["{}/team/app", "{}/team", "https://{}/v1/", "https://{}", "http://{}"])
def test_keys_of_auth_files(client: Client, private: Stock, key: str) -> None:
    client.write(".docker/config.json", auths(private, key.format(private.host)))
    assert client.digest(f"{private.host}/{PATH}:v1") == private.image.digest


HELPER = f"""#!/bin/sh
read -r host
case "$1 $host" in
  "get $WANTED") echo '{{"ServerURL": "x", "Username": "{USER}", "Secret": "{PASSWORD}"}}' ;;
  *) echo "credentials not found in native keychain"; exit 1 ;;
esac
"""


@pytest.mark.parametrize("kind", ["credHelpers", "credsStore"])
def test_credential_helpers(client: Client, private: Stock, kind: str) -> None:
    client.write("bin/docker-credential-vault", HELPER, 0o700)
    value = {private.host: "vault"} if kind == "credHelpers" else "vault"
    client.write(".docker/config.json", json.dumps({kind: value, "auths": {private.host: {}}}))
    uri = f"{private.host}/{PATH}:v1"
    assert client.digest(uri, WANTED=private.host) == private.image.digest
    text = client.error("digest", f"docker://{uri}", WANTED="other")
    assert (
        f"docker-credential-vault of {client.home}/.docker/config.json ({kind}) (credentials not found in"
        in text
    )


def test_auth_files_that_are_damaged(client: Client, private: Stock) -> None:
    client.write(".config/containers/auth.json", '{\n"auths": {,')
    client.write(".docker/config.json", auths(private, auth="!!!"))
    text = client.error("digest", f"docker://{private.host}/{PATH}:v1")
    assert "/.config/containers/auth.json (line 2: no valid JSON)" in text
    assert f"/.docker/config.json (auth of {private.host} is not the base64 of USER:PASSWORD)" in text


def test_a_token_that_expires_while_layers_come(client: Client, stock: Stock, proxy: Proxy) -> None:
    proxy.uses_of_a_token = 3
    assert client.fetch(f"{proxy.host}/{PATH}:many", ENROOT_MAX_CONNECTIONS="2").is_of(stock.many)
    assert len(proxy.tokens) >= 5


def test_a_token_is_asked_once(client: Client, stock: Stock, proxy: Proxy) -> None:
    proxy.uses_of_a_token = 99
    assert client.fetch(f"{proxy.host}/{PATH}:many").is_of(stock.many)
    assert len(proxy.tokens) == 1
