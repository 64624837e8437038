# SPDX-License-Identifier: Apache-2.0
"""Makes the four requests to Kubernetes' API: list, create and delete pods, and list a pod's events.

It uses only the standard library: the client libraries bring more code than this program has, into the only
container with a token. Each request has a time limit, for each answer of the server and for all of it.
"""

from __future__ import annotations

import http.client
import json
import os
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

# Of a whole request, in seconds. A list of 10,000 pods is some 100 MB.
LIMIT_S = 20.0
_MOST_BYTES = 512 * 2**20
_CHUNK = 2**20
# Pods in an answer; the next ones are asked for.
_PAGE = 500


class Fault(Exception):
    """The API did not answer, or not now: try again later."""


class Refused(Exception):
    """The API does not take what it was sent. `conflict`: an object of that name is there."""

    def __init__(self, message: str, conflict: bool = False) -> None:
        super().__init__(message)
        self.conflict = conflict


@dataclass(frozen=True)
class Access:
    """Where the API is, and by which files one speaks to it; the token's changes every hour."""

    url: str
    namespace: str
    token: Path
    authorities: Path
    limit_s: float = LIMIT_S


class Api:
    """The pods of a namespace."""

    def __init__(self, access: Access) -> None:
        self._access = access

    def pods(self, selector: str) -> list[Mapping[str, Any]]:
        """All pods with the labels `selector`, as they are now. Raises Fault and Refused."""
        items: list[Mapping[str, Any]] = []
        more = ""
        while True:
            query = {"labelSelector": selector, "limit": str(_PAGE), **({"continue": more} if more else {})}
            answer = self._ask("GET", f"pods?{urlencode(query)}")
            items += answer.get("items") or []
            more = (answer.get("metadata") or {}).get("continue") or ""
            if not more:
                return items

    def create(self, pod: Mapping[str, Any]) -> None:
        """Make `pod`. Raises Fault and Refused."""
        self._ask("POST", "pods", pod)

    def delete(self, name: str, uid: str) -> None:
        """Ask the pod `name` to end, if it is the one with `uid`. Raises Fault and Refused."""
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}
        try:
            self._ask("DELETE", f"pods/{quote(name, safe='')}", options)
        except Refused as error:
            # It is gone, or another one has its name.
            if not error.conflict:
                raise

    def events(self, uid: str) -> list[Mapping[str, Any]]:
        """What is said of the pod with `uid`. Raises Fault and Refused."""
        query = urlencode({"fieldSelector": f"involvedObject.uid={uid}", "limit": "100"})
        return self._ask("GET", f"events?{query}").get("items") or []

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        try:
            status, text = self._exchange(method, path, body)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise Fault(f"{type(error).__name__}: {error}") from error
        try:
            answer = json.loads(text)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            answer = {}
            if status < 300:
                raise Fault(f"an answer to {method} that is no JSON: {text[:100]!r}")
        if status < 300:
            return answer
        said = str(
            answer.get("message") or text[:200].decode(errors="replace") or http.client.responses.get(status)
        )
        # 401: the token is renewed, or the key that it was signed with is not known yet; 410: the list's next
        # page is too old; 429: too many requests.
        if status >= 500 or status in (401, 408, 410, 429):
            raise Fault(f"{status} {said}")
        raise Refused(said, conflict=status in (404, 409) if method == "DELETE" else status == 409)

    def _exchange(self, method: str, path: str, body: Mapping[str, Any] | None) -> tuple[int, bytes]:
        deadline = time.monotonic() + self._access.limit_s
        connection = self._connection()
        try:
            token = self._access.token.read_text(encoding="ascii").strip()
            head = {
                "Accept": "application/json",
                "Content-Type": "application/json",
                "User-Agent": "cellblock-node-pods",
                "Authorization": f"Bearer {token}",
            }
            text = None if body is None else json.dumps(body).encode()
            base = urlsplit(self._access.url).path.rstrip("/")
            space = quote(self._access.namespace, safe="")
            connection.request(method, f"{base}/api/v1/namespaces/{space}/{path}", text, head)
            with connection.getresponse() as response:
                parts: list[bytes] = []
                size = 0
                while part := response.read1(_CHUNK):
                    parts.append(part)
                    size += len(part)
                    if size > _MOST_BYTES:
                        raise ValueError(f"an answer of more than {_MOST_BYTES} bytes")
                    if time.monotonic() > deadline:
                        raise TimeoutError("the answer took too long")
                return response.status, b"".join(parts)
        finally:
            connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        where = urlsplit(self._access.url)
        host = where.hostname or ""
        if where.scheme == "http":
            return http.client.HTTPConnection(host, where.port or 80, timeout=self._access.limit_s)
        trusted = ssl.create_default_context(cafile=os.fspath(self._access.authorities))
        # From Python 3.13 on it wants more of an authority's certificate than those who make clusters put in.
        trusted.verify_flags &= ~ssl.VERIFY_X509_STRICT
        return http.client.HTTPSConnection(
            host, where.port or 443, timeout=self._access.limit_s, context=trusted
        )
