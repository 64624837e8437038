# SPDX-License-Identifier: Apache-2.0
"""Makes the requests of OCI distribution-spec 1.1 to one registry and its repositories.

transport.py below it sends and repeats them; upload.py and download.py carry blobs.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import quote, urlencode, urljoin

from urllib3.response import BaseHTTPResponse

from cellblock.oci.model import (
    DOCKER_LIST,
    DOCKER_MANIFEST,
    INDEX,
    MANIFEST,
    Descriptor,
    Index,
    MalformedImage,
    digest_of_bytes,
    parse,
)
from cellblock.oci.registry.authorization import Authorization
from cellblock.oci.registry.connection import ConnectionOptions
from cellblock.oci.registry.credentials import FindCredential, find_credential
from cellblock.oci.registry.errors import (
    NotInRegistry,
    RegistryError,
    RegistryUnreachable,
    SpeaksPlainHttp,
    TokenExpired,
    WrongDigest,
    answer_error,
)
from cellblock.oci.registry.transport import Answer, Body, Notice, Transport, origin

_MANIFESTS = ", ".join([MANIFEST, INDEX, DOCKER_MANIFEST, DOCKER_LIST])
_ERROR_BODY = 64 * 1024


@dataclass(frozen=True)
class RemoteManifest:
    """A manifest or index as a registry has it: what it is, and its very bytes, verified."""

    descriptor: Descriptor
    data: bytes


class Registry:
    """The registry at `host` (with its port). Nothing is sent before the first request needs it.

    `notice` is told of waits; `stopped` ends them; `credentials` are looked for when the registry asks. May
    be used by several threads.
    """

    def __init__(
        self,
        host: str,
        options: ConnectionOptions | None = None,
        *,
        notice: Notice = lambda _: None,
        stopped: threading.Event | None = None,
        credentials: FindCredential = find_credential,
    ) -> None:
        self.host = host
        self._credentials = credentials
        self.transport = Transport(host, options, notice=notice, stopped=stopped)
        self._lock = threading.Lock()
        self._session: tuple[str, Authorization] | None = None
        self._unreachable: RegistryUnreachable | None = None

    def repository(self, path: str) -> Repository:
        """The repository `path`, which need not exist."""
        return Repository(self, path)

    def session(self) -> tuple[str, Authorization]:
        """The registry's base URL, and what authorizes; asks `GET /v2/` once.

        Raises RegistryError when there is no registry, or none that may be spoken to without TLS.
        """
        with self._lock:
            if self._unreachable is not None:
                raise self._unreachable  # no second wait of other threads for the same
            if self._session is None:
                try:
                    self._session = self._begin()
                except RegistryUnreachable as error:
                    self._unreachable = error
                    raise
            return self._session

    def _begin(self) -> tuple[str, Authorization]:
        schemes = self.transport.options.schemes(self.host)
        for scheme in schemes:
            base = f"{scheme}://{self.host}/v2/"
            try:
                answer = self.transport.retrying()(self._ping, base)
            except SpeaksPlainHttp:
                if scheme == schemes[-1]:
                    raise
                continue
            authorization = Authorization(self.transport, base, self._credentials)
            if answer.status == 401:
                authorization.challenged(answer)
            return base, authorization
        raise AssertionError("there is at least one scheme")

    def _ping(self, base: str) -> Answer:
        doing = "ask whether it is a registry"
        answer = self.transport.request("GET", base, doing)
        if answer.status == 404:
            raise RegistryError(
                f"{self.host}: this is no registry: {base} is not there", hint="check the address", status=404
            )
        # What refuses here (403, 405) may still serve a repository.
        if answer.status >= 500 or answer.status in (400, 429):
            raise answer_error(self.host, doing, answer.status, answer.headers, answer.body)
        return answer


class Repository:
    """One repository. Methods raise RegistryError and its kinds; each tries again what may pass."""

    def __init__(self, registry: Registry, path: str) -> None:
        self.registry = registry
        self.path = path

    def __str__(self) -> str:
        return f"{self.registry.host}/{self.path}"

    # -- blobs ---------------------------------------------------------------------------------

    def blob_size(self, digest: str) -> int | None:
        """Bytes of a blob; None when the repository has none such."""
        answer = self._ask("HEAD", f"blobs/{digest}", f"look for blob {_short(digest)} in {self.path}")
        if answer is None:
            return None
        length = answer.headers.get("Content-Length", "")
        return int(length) if length.isdigit() else 0

    @contextmanager
    def open_blob(self, digest: str, offset: int = 0) -> Iterator[BaseHTTPResponse]:
        """An answer whose body is the blob, from `offset` on when its status is 206, else from its start.

        Raises Transient too: `download.blob_chunks` goes on after a break.
        """
        doing = f"fetch blob {_short(digest)} of {self.path}"
        headers = {"Range": f"bytes={offset}-"} if offset else {}
        for last in (False, True):
            url, headers = self._prepared(f"blobs/{digest}", "pull", headers)
            with self.registry.transport.open("GET", url, doing, headers=headers) as response:
                if response.status < 400:
                    yield response
                    return
                answer = Answer(response.status, response.headers, response.read(_ERROR_BODY), url)
            self._check(answer, doing, headers, last=last)

    # -- manifests -----------------------------------------------------------------------------

    def descriptor(self, reference: str) -> Descriptor | None:
        """What the tag or digest `reference` names, without fetching it; None when there is none."""
        doing = f"look for {self.path}:{reference}"
        answer = self._ask("HEAD", f"manifests/{reference}", doing, headers={"Accept": _MANIFESTS})
        if answer is None:
            return None
        digest = answer.headers.get("Docker-Content-Digest", "")
        length = answer.headers.get("Content-Length", "")
        if not digest or not length.isdigit():
            # Both may be left out of the answer to HEAD: then only the bytes say it.
            return self.manifest(reference).descriptor
        return Descriptor(_media_type(answer), digest, int(length))

    def manifest(self, reference: str) -> RemoteManifest:
        """The manifest or index of a tag or digest. Raises NotInRegistry, and WrongDigest."""
        doing = f"fetch {self.path}:{reference}"
        answer = self._ask("GET", f"manifests/{reference}", doing, headers={"Accept": _MANIFESTS})
        if answer is None:
            raise NotInRegistry(
                f"{self.registry.host}: {self.path} has no {reference}",
                hint=f"see what there is: `skopeo list-tags docker://{self}`",
                status=404,
            )
        digest = digest_of_bytes(answer.body)
        said = reference if reference.startswith("sha256:") else answer.headers.get("Docker-Content-Digest")
        if said and said != digest:
            raise WrongDigest(
                f"{self.registry.host}: could not {doing}: what came has digest {digest}, and not {said}",
                hint="run this again; when it stays so, the registry's copy is damaged: push it again",
            )
        media_type = parse(answer.body).get("mediaType") or _media_type(answer)
        return RemoteManifest(Descriptor(media_type, digest, len(answer.body)), answer.body)

    def put_manifest(self, data: bytes, media_type: str, tag: str | None = None) -> Answer:
        """Store a manifest or index, under `tag` when given; all that it names must be there.

        Raises WrongDigest when the registry has stored something else.
        """
        digest = digest_of_bytes(data)
        within = tag or digest
        doing = f"store the manifest of {self.path}:{within}"
        answer = self.send(
            "PUT", f"manifests/{within}", doing, headers={"Content-Type": media_type}, body=data, retry=True
        )
        said = answer.headers.get("Docker-Content-Digest")
        if said is None:
            found = self.descriptor(within)
            said = found.digest if found else "none"
        if said != digest:
            raise WrongDigest(
                f"{self.registry.host}: could not {doing}: its digest is {digest}, the registry says {said}",
                hint="something on the way to the registry changes what is sent; do not use that tag",
            )
        return answer

    def tags(self) -> list[str]:
        """All tags; none when the repository does not exist."""
        found: list[str] = []
        path: str | None = "tags/list?n=1000"
        while path:
            answer = self._ask("GET", path, f"list the tags of {self.path}")
            if answer is None:
                break
            found += [str(tag) for tag in parse(answer.body).get("tags") or ()]
            path = _next(answer)
        return found

    def referrers(self, digest: str) -> tuple[Descriptor, ...]:
        """Artifacts whose subject is the manifest `digest`, by the API, else by the fallback tag."""
        doing = f"list what is attached to {_short(digest)} in {self.path}"
        answer = self._ask("GET", f"referrers/{digest}", doing)
        if answer is not None:
            try:
                return Index.of_bytes(answer.body).manifests
            except MalformedImage:
                pass  # a registry without the API may answer with a page
        try:
            return Index.of_bytes(self.manifest(fallback_tag(digest)).data).manifests
        except NotInRegistry:
            return ()

    # -- any request ---------------------------------------------------------------------------

    def send(
        self,
        method: str,
        path: str,
        doing: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: Body | None = None,
        also_read: tuple[str, ...] = (),
        actions: str = "pull,push",
        retry: bool = False,
    ) -> Answer:
        """One authorized request; `path` is below the repository, or a whole URL that the registry gave.

        Raises RegistryError for a status of 400 and more. Without `retry`, Transient ones are the caller's. A
        401 is answered with a new token once; a `body` that is a stream cannot be sent twice: TokenExpired.
        """

        def once() -> Answer:
            streamed = body is not None and not isinstance(body, bytes)
            for last in (False, True):
                url, ready = self._prepared(path, actions, dict(headers or {}), also_read)
                answer = self.registry.transport.request(method, url, doing, headers=ready, body=body)
                if answer.status < 400:
                    return answer
                self._check(answer, doing, ready, last=last)
                if streamed:
                    raise TokenExpired(
                        f"{self.registry.host}: could not {doing}: the token ended", status=401
                    )
            raise AssertionError("the last check raises")

        return self.registry.transport.retrying()(once) if retry else once()

    # -- inside --------------------------------------------------------------------------------

    def _ask(
        self, method: str, path: str, doing: str, *, headers: Mapping[str, str] | None = None
    ) -> Answer | None:
        """A request that changes nothing; None for 404."""
        try:
            return self.send(method, path, doing, headers=headers, actions="pull", retry=True)
        except NotInRegistry:
            return None

    def _prepared(
        self, path: str, actions: str, headers: Mapping[str, str], also_read: tuple[str, ...] = ()
    ) -> tuple[str, dict[str, str]]:
        """The whole URL, and the headers with Authorization where it belongs."""
        base, authorization = self.registry.session()
        url = urljoin(f"{base}{quote(self.path)}/", path)
        ready = dict(headers)
        # A registry behind a proxy that ends TLS may give http URLs of itself: the way here is known better.
        if origin(url)[1] == origin(base)[1] and origin(url)[0] != origin(base)[0]:
            url = base.partition(":")[0] + ":" + url.partition(":")[2]
        if origin(url) == origin(base):
            header = authorization.header(self.path, actions, also_read)
            if header is not None:
                ready["Authorization"] = header
        return url, ready

    def _check(self, answer: Answer, doing: str, headers: Mapping[str, str], *, last: bool) -> None:
        """Raise what an answer of status >= 400 means; a 401 only when there is no other token to try."""
        _, authorization = self.registry.session()
        if answer.status == 401:
            sent = headers.get("Authorization")
            if sent:
                authorization.forget(sent)
            authorization.challenged(answer)
            if not last and not (sent and sent.startswith("Basic ")):
                return
        if answer.status in (401, 403):
            raise authorization.refusal(self.path, doing, answer)
        raise answer_error(self.registry.host, doing, answer.status, answer.headers, answer.body)


def fallback_tag(digest: str) -> str:
    """Tag of the index of referrers in a registry without that API (distribution-spec 1.1)."""
    return digest.replace(":", "-")


def with_query(url: str, **parameters: str) -> str:
    """`url` with parameters added to those it has."""
    return f"{url}{'&' if '?' in url else '?'}{urlencode(parameters, safe=':/')}"


def _media_type(answer: Answer) -> str:
    return answer.headers.get("Content-Type", MANIFEST).partition(";")[0].strip()


def _next(answer: Answer) -> str | None:
    """The URL of the next page (RFC 5988)."""
    link = answer.headers.get("Link", "")
    if 'rel="next"' not in link and "rel=next" not in link:
        return None
    return urljoin(answer.url, link.partition("<")[2].partition(">")[0])


def _short(digest: str) -> str:
    return digest.removeprefix("sha256:")[:12]
