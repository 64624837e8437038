# SPDX-License-Identifier: Apache-2.0
"""Where credentials for a registry are looked for, in which order, and for which names they count."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from cellblock.oci.registry.credentials import Search, find_credential

HOST = "registry.example:5000"


def auth(user: str, password: str = "secret") -> dict[str, str]:
    return {"auth": base64.b64encode(f"{user}:{password}".encode()).decode()}


class Home:
    """A home directory, and the environment of who lives there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environ = {"HOME": str(folder), "PATH": str(folder), "XDG_RUNTIME_DIR": str(folder / "run")}

    def write(self, name: str, data: Mapping[str, Any]) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(data))
        return path

    def helper(self, name: str, script: str) -> None:
        path = self.folder / f"docker-credential-{name}"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def find(self, path: str = "slurm/worker") -> Search:
        return find_credential(HOST, path, self.environ)

    def user(self, path: str = "slurm/worker") -> str | None:
        credential = self.find(path).credential
        return credential.username if credential else None


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def test_places_are_asked_in_order(home: Home) -> None:
    places = [
        (".docker/config.json", "docker"),
        (".config/containers/auth.json", "user"),
        ("run/containers/auth.json", "session"),
        ("named.json", "named"),
    ]
    for name, user in places:
        if user == "named":
            home.environ["REGISTRY_AUTH_FILE"] = str(home.folder / name)
        home.write(name, {"auths": {HOST: auth(user)}})
        assert home.user() == user
    home.environ |= {"CELLBLOCK_REGISTRY_USER": "environment", "CELLBLOCK_REGISTRY_PASSWORD": "x"}
    assert home.user() == "environment"


def test_docker_config_may_be_elsewhere(home: Home) -> None:
    home.write("elsewhere/config.json", {"auths": {HOST: auth("ada")}})
    home.environ["DOCKER_CONFIG"] = str(home.folder / "elsewhere")
    assert home.user() == "ada"


def test_credentials_of_the_environment_can_be_for_one_host_only(home: Home) -> None:
    home.environ |= {"CELLBLOCK_REGISTRY_USER": "ada", "CELLBLOCK_REGISTRY_PASSWORD": "x"}
    home.environ["CELLBLOCK_REGISTRY_HOST"] = "another.example"
    found = home.find()
    assert found.credential is None
    assert "for another.example only" in found.places[0]


def test_the_most_specific_key_decides(home: Home) -> None:
    keys = {HOST: auth("host"), f"{HOST}/slurm": auth("slurm"), f"https://{HOST}/v1/": auth("old")}
    home.write(".config/containers/auth.json", {"auths": keys})
    assert home.user("slurm/worker") == "slurm"
    assert home.user("slurmx") == "host"


def test_the_key_of_an_old_docker_is_understood(home: Home) -> None:
    home.write(".docker/config.json", {"auths": {f"https://{HOST}/v1/": auth("old")}})
    assert home.user() == "old"


def test_a_password_may_hold_colons(home: Home) -> None:
    home.write(".docker/config.json", {"auths": {HOST: auth("ada", "a:b:c")}})
    credential = home.find().credential
    assert credential is not None
    assert credential.secret == "a:b:c"
    assert "a:b:c" not in repr(credential)


@pytest.mark.parametrize("key", ["credHelpers", "credsStore"])
def test_a_helper_is_asked_for_the_host(home: Home, key: str) -> None:
    home.helper(
        "vault", f'read host; [ "$1 $host" = "get {HOST}" ] && echo \'{{"Username":"ada","Secret":"s"}}\''
    )
    value = {HOST: "vault"} if key == "credHelpers" else "vault"
    home.write(".docker/config.json", {key: value, "auths": {HOST: {}}})
    credential = home.find().credential
    assert credential is not None
    assert (credential.username, credential.secret) == ("ada", "s")
    assert "docker-credential-vault" in credential.source


def test_a_helper_may_give_an_identity_token(home: Home) -> None:
    home.helper("vault", """echo '{"Username":"<token>","Secret":"t"}'""")
    home.write(".docker/config.json", {"credsStore": "vault"})
    credential = home.find().credential
    assert credential is not None
    assert (credential.is_identity_token, credential.secret) == (True, "t")


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("echo credentials not found in native keychain; exit 1", "credentials not found in native keychain"),
        ("echo '{}'", "no credentials"),
        ("echo nonsense", "no credentials"),
        (None, "not installed"),
    ],
)
def test_a_helper_that_gives_nothing_is_told_and_the_next_place_asked(
    home: Home, script: str | None, told: str
) -> None:
    if script:
        home.helper("vault", script)
    home.write(".config/containers/auth.json", {"credHelpers": {HOST: "vault"}})
    home.write(".docker/config.json", {"auths": {HOST: auth("ada")}})
    found = home.find()
    assert found.credential is not None
    assert found.credential.username == "ada"
    assert any("docker-credential-vault" in place and told in place for place in found.places)


def test_a_file_that_is_no_json_is_told_and_the_next_place_asked(home: Home) -> None:
    home.write(".docker/config.json", {"auths": {HOST: auth("ada")}})
    path = home.write(".config/containers/auth.json", {})
    path.write_text("{")
    found = home.find()
    assert found.credential is not None
    assert any(place.startswith(f"{path} (cannot be read") for place in found.places)


def test_every_place_is_named_when_nothing_is_found(home: Home) -> None:
    found = home.find()
    assert found.credential is None
    named = " ".join(found.places)
    for part in (
        "CELLBLOCK_REGISTRY_USER",
        "run/containers/auth.json",
        ".config/containers",
        ".docker/config.json",
    ):
        assert part in named
