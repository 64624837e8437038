# SPDX-License-Identifier: Apache-2.0
"""Runs a token server for docker's registry (its token specification), with tokens signed by openssl.

It is a small but real one: the registry verifies its tokens, and refuses one without rights to a repository.
"""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

_SERVICE, _ISSUER = "tests", "cellblock tests"


@dataclass
class TokenServer:
    """At `host` (a name without its port, as netrc has it); `auth` configures a registry for it."""

    host: str
    auth: dict[str, Any]
    forbidden: set[str] = field(default_factory=set)
    """Repositories that nobody may read."""


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


class _Signer:
    def __init__(self, folder: Path) -> None:
        self.key, self.certificate = folder / "key.pem", folder / "certificate.pem"
        made = ["-keyout", str(self.key), "-out", str(self.certificate), "-days", "2", "-subj", "/CN=tokens"]
        command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", *made]
        subprocess.run(command, check=True, capture_output=True)
        self._chain = "".join(self.certificate.read_text().splitlines()[1:-1])

    def token(self, claims: dict[str, Any]) -> str:
        header = {"typ": "JWT", "alg": "RS256", "x5c": [self._chain]}
        text = ".".join(_encoded(json.dumps(part).encode()) for part in (header, claims))
        command = ["openssl", "dgst", "-sha256", "-sign", str(self.key)]
        signature = subprocess.run(command, input=text.encode(), capture_output=True, check=True).stdout
        return f"{text}.{_encoded(signature)}"


@contextmanager
def running_token_server(folder: Path, user: str, password: str) -> Iterator[TokenServer]:
    """Gives tokens to `user` alone."""
    if not shutil.which("openssl"):
        pytest.skip("openssl is not installed: `python3 build.py test` installs it")
    signer = _Signer(folder)
    wanted = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            pass

        def do_GET(self) -> None:
            query = parse_qs(urlsplit(self.path).query)
            if self.headers.get("Authorization") != wanted:
                self._answer(401, {"errors": [{"code": "UNAUTHORIZED"}]})
                return
            access = []
            for scope in query.get("scope", []):
                kind, name, actions = scope.split(":")
                if name not in server.forbidden:
                    access.append({"type": kind, "name": name, "actions": actions.split(",")})
            now = int(time.time())
            claims = {
                "iss": _ISSUER,
                "sub": user,
                "aud": query["service"][0],
                "exp": now + 300,
                "nbf": now - 10,
                "iat": now,
                "jti": "1",
                "access": access,
            }
            self._answer(200, {"token": signer.token(claims), "expires_in": 300})

        def _answer(self, status: int, body: object) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    listening = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    realm = f"http://localhost:{listening.server_address[1]}/token"
    auth = {"realm": realm, "service": _SERVICE, "issuer": _ISSUER, "rootcertbundle": str(signer.certificate)}
    server = TokenServer("localhost", {"token": auth})
    threading.Thread(target=listening.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield server
    finally:
        listening.shutdown()
        listening.server_close()
