# SPDX-License-Identifier: Apache-2.0
"""Finds credentials for a registry where docker, podman and skopeo keep them (containers-auth.json(5)).

In this order: CELLBLOCK_REGISTRY_USER and CELLBLOCK_REGISTRY_PASSWORD; the file of REGISTRY_AUTH_FILE;
podman's auth.json of the session and of the user; docker's config.json. Each may name a helper program.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# A helper may ask a keyring, but not a person: nobody may be there.
_HELPER_TIMEOUT_S = 30


@dataclass(frozen=True)
class Credential:
    """Who asks. With `is_identity_token`, `secret` is an OAuth 2 refresh token and `username` empty."""

    username: str
    secret: str = field(repr=False)
    source: str
    """Where it was found, for a person."""
    is_identity_token: bool = False


@dataclass(frozen=True)
class Search:
    """What was found for a registry, and where it was looked for, one phrase a place."""

    credential: Credential | None
    places: tuple[str, ...]


FindCredential = Callable[[str, str, Mapping[str, str]], Search]
"""Finds the credential for a registry's host, a path in it, and an environment."""


def find_credential(host: str, path: str, environ: Mapping[str, str] = os.environ) -> Search:
    """The credential for repository `path` of registry `host`.

    Never fails: what could not be read or run is told in `places`, and the next place asked.
    """
    places: list[str] = []
    for credential in _candidates(host, path, environ, places):
        return Search(credential, tuple(places))
    return Search(None, tuple(places))


def auth_files(environ: Mapping[str, str]) -> list[Path]:
    """The files that may hold credentials, the first to be asked first."""
    files = []
    if environ.get("REGISTRY_AUTH_FILE"):
        files.append(Path(environ["REGISTRY_AUTH_FILE"]))
    runtime = environ.get("XDG_RUNTIME_DIR")
    files.append(
        Path(runtime, "containers/auth.json") if runtime else Path(f"/run/containers/{os.getuid()}/auth.json")
    )
    home = Path(environ.get("HOME") or "~").expanduser()
    files.append(Path(environ.get("XDG_CONFIG_HOME") or home / ".config") / "containers/auth.json")
    files.append(Path(environ.get("DOCKER_CONFIG") or home / ".docker") / "config.json")
    return files


def _candidates(host: str, path: str, environ: Mapping[str, str], places: list[str]) -> Iterator[Credential]:
    user, password = environ.get("CELLBLOCK_REGISTRY_USER"), environ.get("CELLBLOCK_REGISTRY_PASSWORD")
    only = environ.get("CELLBLOCK_REGISTRY_HOST")
    places.append("CELLBLOCK_REGISTRY_USER and CELLBLOCK_REGISTRY_PASSWORD")
    if user and password and only in (None, "", host):
        yield Credential(user, password, "the environment (CELLBLOCK_REGISTRY_USER)")
    elif user or password:
        places[-1] += f" (for {only} only)" if user and password else " (only one of them is set)"
    for file in auth_files(environ):
        places.append(str(file))
        try:
            data = json.loads(file.read_text(encoding="utf-8"))
            if not isinstance(data, dict):
                raise ValueError("no object")
        except FileNotFoundError:
            places[-1] += " (not there)"
            continue
        except (OSError, ValueError) as error:
            places[-1] += f" (cannot be read: {error})"
            continue
        yield from _of_file(file, data, host, path, environ, places)


def _of_file(
    file: Path, data: Mapping[str, Any], host: str, path: str, environ: Mapping[str, str], places: list[str]
) -> Iterator[Credential]:
    helpers, auths = data.get("credHelpers") or {}, data.get("auths") or {}
    helper = helpers.get(host)
    if helper:
        yield from _of_helper(str(helper), host, f"{file} (credHelpers)", environ, places)
    for key in _keys(host, path):
        if isinstance(auths.get(key), dict):
            credential = _of_entry(auths[key], f"{file}, key {key}")
            if credential:
                yield credential
    # docker writes an empty entry into `auths` for what its store holds, and keeps the store last here so
    # that a file with both, as login of podman leaves it, prefers what stands in it.
    if data.get("credsStore") and not helper:
        yield from _of_helper(str(data["credsStore"]), host, f"{file} (credsStore)", environ, places)


def _keys(host: str, path: str) -> Iterator[str]:
    """Keys of `auths` that concern the repository, the most specific first."""
    parts = path.split("/") if path else []
    for length in range(len(parts), 0, -1):
        yield "/".join([host, *parts[:length]])
    yield host
    # As docker login of old wrote them.
    for version in ("", "/", "/v1/", "/v2/", "/v1", "/v2"):
        yield f"https://{host}{version}"


def _of_entry(entry: Mapping[str, Any], source: str) -> Credential | None:
    token = entry.get("identitytoken")
    if isinstance(token, str) and token:
        return Credential("", token, source, is_identity_token=True)
    if isinstance(entry.get("auth"), str):
        try:
            user, colon, password = base64.b64decode(entry["auth"]).decode().partition(":")
        except (binascii.Error, ValueError):
            return None
        if colon and user:
            return Credential(user, password.rstrip("\0"), source)
    if entry.get("username") and entry.get("password"):
        return Credential(str(entry["username"]), str(entry["password"]), source)
    return None


def _of_helper(
    name: str, host: str, source: str, environ: Mapping[str, str], places: list[str]
) -> Iterator[Credential]:
    """Ask `docker-credential-NAME get`, which reads the host and prints one JSON object."""
    program = f"docker-credential-{name}"
    places.append(f"{program} of {source}")
    if "/" in name:
        places[-1] += " (no name of a helper)"
        return
    try:
        done = subprocess.run(
            [program, "get"],
            input=f"{host}\n",
            capture_output=True,
            text=True,
            timeout=_HELPER_TIMEOUT_S,
            check=False,
            env=dict(environ),
        )
    except FileNotFoundError:
        places[-1] += " (not installed)"
        return
    except (OSError, subprocess.TimeoutExpired) as error:
        places[-1] += f" ({error})"
        return
    try:
        answer = json.loads(done.stdout) if done.returncode == 0 else {}
        user, secret = answer.get("Username"), answer.get("Secret")
    except (ValueError, AttributeError):
        user = secret = None
    if not secret:
        # Its complaint, on either stream; never what a successful helper printed.
        said = " ".join((done.stdout + done.stderr).split())[:200] if done.returncode else "no credentials"
        places[-1] += f" ({said or f'status {done.returncode}'})"
        return
    token = user in ("<token>", "")
    yield Credential("" if token else str(user), str(secret), f"{program} ({source})", token)
