# SPDX-License-Identifier: Apache-2.0
"""Makes the Authorization header: basic (RFC 7617), or bearer tokens from the registry's token server.

Tokens follow docker's token specification (GET with basic) and its OAuth 2 variant (POST with an identity
token). Each is kept for its set of scopes until it expires.
"""

from __future__ import annotations

import base64
import json
import re
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import urlencode, urljoin, urlsplit

from cellblock.oci.registry.connection import is_loopback
from cellblock.oci.registry.credentials import Credential, FindCredential, Search, find_credential
from cellblock.oci.registry.errors import (
    Denied,
    RegistryError,
    answer_error,
    credentials_missing,
    not_accepted,
)
from cellblock.oci.registry.transport import Answer, Transport

# What a token server means that names no lifetime (token specification), in seconds.
_LIFETIME_S = 60.0
# A token is asked anew this long before it ends, or at nine tenths of a short life: a request takes time.
_MARGIN_S = 10.0

_PARAMETER = re.compile(r'([A-Za-z][A-Za-z0-9_-]*)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s",]+))')


@dataclass(frozen=True)
class Challenge:
    """WWW-Authenticate of a 401: the scheme in lower case, and its parameters."""

    scheme: str
    parameters: Mapping[str, str]

    @staticmethod
    def of_header(header: str) -> Challenge | None:
        """The bearer challenge of `header`, else the basic one; None when there is neither."""
        found: dict[str, Challenge] = {}
        # Several challenges may stand in one header: each begins with a word that no "=" follows. What is
        # quoted does not count: a scope there can look like one.
        bare = re.sub(r'"(?:[^"\\]|\\.)*"', lambda quoted: "_" * len(quoted[0]), header)
        starts = [*re.finditer(r"(?:^|,)\s*([A-Za-z][A-Za-z0-9_-]*)(?=\s+[A-Za-z]|\s*$)", bare)]
        for number, start in enumerate(starts):
            end = starts[number + 1].start() if number + 1 < len(starts) else len(header)
            pairs = _PARAMETER.finditer(header, start.end(), end)
            parameters = {
                pair[1].lower(): re.sub(r"\\(.)", r"\1", pair[2]) if pair[2] is not None else pair[3]
                for pair in pairs
            }
            found.setdefault(start[1].lower(), Challenge(start[1].lower(), parameters))
        return found.get("bearer") or found.get("basic")


@dataclass(frozen=True)
class _Token:
    value: str
    good_until: float
    """By time.monotonic()."""


class Authorization:
    """Headers for requests to one registry, whose base URL is `base`; `find` looks for credentials."""

    def __init__(self, transport: Transport, base: str, find: FindCredential = find_credential) -> None:
        self._find = find
        self._transport = transport
        self._base = base
        self._challenge: Challenge | None = None
        self._tokens: dict[frozenset[str], _Token] = {}
        self._searches: dict[str, Search] = {}
        self._lock = threading.RLock()

    def challenged(self, answer: Answer) -> None:
        """Take note of a 401. Raises RegistryError when it asks for what we cannot do."""
        header = answer.headers.get("WWW-Authenticate", "")
        challenge = Challenge.of_header(header)
        if challenge is None:
            raise RegistryError(
                f"{self._transport.host}: it asks for an authentication that Cellblock does not know: "
                f"{header[:100] or 'it names none'}",
                hint="basic and bearer authentication are supported; is this address a registry's?",
                status=401,
            )
        self._challenge = challenge

    def header(self, path: str, actions: str, also_read: Iterable[str] = ()) -> str | None:
        """For requests that need `actions` ("pull", "pull,push") on repository `path`, and to read others.

        None while the registry has not asked. Raises CredentialsMissing when basic ones are wanted and there
        are none, Denied and RegistryError of the token server.
        """
        if self._challenge is None:
            return None
        with self._lock:
            if self._challenge.scheme == "basic":
                return _basic(self._basic_credential(path))
            scopes = frozenset(
                [f"repository:{path}:{actions}", *(f"repository:{other}:pull" for other in also_read)]
            )
            token = self._tokens.get(scopes)
            if token is None or token.good_until <= time.monotonic():
                token = self._tokens[scopes] = self._fetch(path, scopes)
            return f"Bearer {token.value}"

    def forget(self, header: str) -> None:
        """The registry refused `header`, which it may have given a minute ago."""
        with self._lock:
            for scopes, token in list(self._tokens.items()):
                if header == f"Bearer {token.value}":
                    del self._tokens[scopes]

    def refusal(self, path: str, doing: str, answer: Answer) -> RegistryError:
        """The error for a 401 or 403 that a new token does not change."""
        host, search = self._transport.host, self._search(path)
        refused = answer_error(host, doing, answer.status, answer.headers, answer.body)
        if search.credential is None and (answer.status == 401 or self._challenge is not None):
            return credentials_missing(host, f"{refused.message}: no credentials for {host}", search.places)
        if (
            answer.status == 401
            and search.credential
            and self._challenge
            and self._challenge.scheme == "basic"
        ):
            return not_accepted(host, _name(search.credential), search.credential.source, answer.status)
        who = ""
        if search.credential is not None and self._challenge is not None:
            who = f" (asked as {_name(search.credential)}, from {search.credential.source})"
        return Denied(
            f"{refused.message}{who}",
            hint=f"ask for the right to do this in {path}, or log in as somebody who has it: "
            f"`skopeo login {host}`"
            if who
            else f"ask who runs {host} why it refuses: it did not ask who we are",
            status=answer.status,
            codes=refused.codes,
        )

    # -- inside --------------------------------------------------------------------------------

    def _search(self, path: str) -> Search:
        with self._lock:
            if path not in self._searches:
                environ = self._transport.options.environ
                self._searches[path] = self._find(self._transport.host, path, environ)
            return self._searches[path]

    def _basic_credential(self, path: str) -> Credential:
        search, host = self._search(path), self._transport.host
        if search.credential is None:
            message = f"{host}: it wants a user and a password, and there are none"
            raise credentials_missing(host, message, search.places)
        self._not_in_the_clear(self._base)
        return search.credential

    def _fetch(self, path: str, scopes: Iterable[str]) -> _Token:
        parameters = self._challenge.parameters if self._challenge else {}
        host, doing = self._transport.host, f"get a token for {path}"
        realm = urljoin(self._base, parameters.get("realm", ""))
        if urlsplit(realm).scheme not in ("http", "https"):
            raise RegistryError(
                f"{host}: its token server '{realm[:100]}' is no web address",
                hint="look at its configuration",
            )
        credential = self._search(path).credential
        if credential is not None:
            self._not_in_the_clear(realm)
        service = {"service": parameters["service"]} if "service" in parameters else {}

        def once() -> Answer:
            headers: dict[str, str] = {}
            if credential is not None and credential.is_identity_token:
                form = urlencode(
                    {
                        "grant_type": "refresh_token",
                        "refresh_token": credential.secret,
                        "client_id": "cellblock",
                        "scope": " ".join(sorted(scopes)),
                        **service,
                    }
                )
                headers["Content-Type"] = "application/x-www-form-urlencoded"
                answer = self._transport.request("POST", realm, doing, headers=headers, body=form.encode())
            else:
                query = urlencode([*service.items(), *(("scope", scope) for scope in sorted(scopes))])
                if credential is not None:
                    headers["Authorization"] = _basic(credential)
                joined = f"{realm}{'&' if urlsplit(realm).query else '?'}{query}"
                answer = self._transport.request("GET", joined, doing, headers=headers)
            if answer.status in (401, 403):
                raise self._token_refused(path, realm, answer)
            if answer.status >= 400:
                raise answer_error(host, doing, answer.status, answer.headers, answer.body)
            return answer

        asked = time.monotonic()
        answer = self._transport.retrying()(once)
        try:
            data = json.loads(answer.body)
            value = str(data.get("token") or data["access_token"])
            lifetime = float(data.get("expires_in") or _LIFETIME_S)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise RegistryError(
                f"{host}: the answer of its token server {realm} holds no token",
                hint="is this the registry's address?",
            ) from error
        return _Token(value, asked + lifetime - min(_MARGIN_S, lifetime / 10))

    def _token_refused(self, path: str, realm: str, answer: Answer) -> RegistryError:
        host, search = self._transport.host, self._search(path)
        who = f"{host}: its token server {urlsplit(realm).netloc}"
        if search.credential is None:
            return credentials_missing(
                host, f"{who} asks for credentials, and none were found", search.places
            )
        return not_accepted(who, _name(search.credential), search.credential.source, answer.status)

    def _not_in_the_clear(self, url: str) -> None:
        """Credentials go over plain http where the user asked for it, and on this machine."""
        options, parts = self._transport.options, urlsplit(url)
        if (
            parts.scheme == "https"
            or options.plain_http
            or not options.verify_tls
            or is_loopback(parts.netloc)
        ):
            return
        raise RegistryError(
            f"{self._transport.host}: it asks for credentials to be sent to {parts.netloc} over plain http",
            hint="have its token server reached over https, or give --plain-http",
        )


def _basic(credential: Credential) -> str:
    pair = f"{credential.username}:{credential.secret}"
    return "Basic " + base64.b64encode(pair.encode()).decode()


def _name(credential: Credential) -> str:
    return credential.username or "the holder of an identity token"
