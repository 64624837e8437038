# SPDX-License-Identifier: Apache-2.0
"""Sends one blob so that a broken connection costs only what was on its way (distribution-spec 1.1, "Push").

A blob goes as one request while the connection lasts. After a break the registry is asked how much it has,
and the rest follows, in smaller pieces each time that nothing got through. Small pieces also show a refusal
(no room, too large): such an answer is lost amid a long body, and read after a short one.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Literal
from urllib.parse import urljoin

from tenacity import AttemptManager

from cellblock.errors import CellblockError
from cellblock.files.sha256 import sha256_of_file
from cellblock.oci.model import Descriptor
from cellblock.oci.registry.client import Repository, with_query
from cellblock.oci.registry.errors import NotInRegistry, RegistryError, Transient, WrongDigest
from cellblock.oci.registry.transport import Answer, Stopped
from cellblock.retries import count_anew

Outcome = Literal["present", "mounted", "sent"]

# What fits into the kernel's buffers needs no resuming: it goes with the request that ends the upload.
SMALL = 1024 * 1024
# Sizes of a piece after each break that nothing got through; the first is "all of it".
_PIECES = (None, 64 << 20, 8 << 20, 1 << 20, 128 << 10)
_RESTARTS = 2


class Upload:
    """One blob, from the file `path` to `repository`.

    `mount_from` are paths of repositories of this registry that may have it. `progress` is called with the
    bytes of this blob that are there, which can be fewer than the last time. Not for several threads.
    """

    def __init__(
        self,
        repository: Repository,
        blob: Descriptor,
        path: Path,
        *,
        mount_from: Sequence[str] = (),
        progress: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._repository = repository
        self._blob = blob
        self._path = path
        self._mount_from = list(mount_from)
        self._progress = progress
        self._doing = f"send blob {blob.digest[7:19]} to {repository.path}"
        self._location: str | None = None
        self._offset = 0
        self._least_piece = 0
        self._reached = 0
        self._uncertain = False
        self._breaks = self._restarts = 0
        self.sent = 0
        """Bytes that went over the network, those sent twice counted twice."""

    def run(self) -> Outcome:
        """Bring the blob there unless it is. Raises RegistryError, and CellblockError for a damaged file."""
        outcome: Outcome = "sent"
        for attempt in self._repository.registry.transport.retrying():
            with attempt:
                outcome = self._attempt(attempt)
        return outcome

    # -- inside --------------------------------------------------------------------------------

    def _attempt(self, attempt: AttemptManager) -> Outcome:
        while True:
            try:
                if self._uncertain:
                    if self._repository.blob_size(self._blob.digest) is not None:
                        return "sent"  # the answer that said so was lost
                    self._resume(attempt)
                outcome = self._begin() if self._location is None else None
                if outcome is None:
                    self._send_all(_PIECES[min(self._breaks, len(_PIECES) - 1)])
                return outcome or "sent"
            except Transient:
                self._uncertain = True
                raise
            except RegistryError as error:
                self._restarts += 1
                limit = len(_PIECES) if error.status == 413 else _RESTARTS
                if self._restarts > limit or not self._can_restart(error):
                    raise
                self._breaks += 1
                self._location, self._offset, self._reached = None, 0, 0

    def _resume(self, attempt: AttemptManager) -> None:
        self._ask_offset()
        if self._offset > self._reached:
            count_anew(attempt)
        else:
            self._breaks += 1
        self._reached, self._uncertain = self._offset, False

    def _begin(self) -> Outcome | None:
        """Mount the blob from another repository, else open an upload."""
        source = self._mount_from.pop(0) if self._mount_from else None
        if source is None:
            if self._repository.blob_size(self._blob.digest) is not None:
                return "present"
            answer = self._repository.send(
                "POST", "blobs/uploads/", self._doing, headers={"Content-Length": "0"}
            )
        else:
            path = with_query("blobs/uploads/", mount=self._blob.digest, **{"from": source})
            try:
                answer = self._repository.send(
                    "POST", path, self._doing, headers={"Content-Length": "0"}, also_read=(source,)
                )
            except Transient:
                raise
            except RegistryError:
                # Not allowed to read there, or not known there: send it.
                return self._begin()
            if answer.status == 201:
                return "mounted"
        self._least_piece = int(answer.headers.get("OCI-Chunk-Min-Length") or 0)
        self._move_on(answer)
        self._offset = 0
        return None

    def _send_all(self, piece: int | None) -> None:
        size = self._blob.size
        with self._path.open("rb") as file:
            if size > SMALL:
                while self._offset < size:
                    length = size - self._offset
                    if piece is not None:
                        length = min(length, max(piece, self._least_piece))
                    self._send_piece(file, length)
            body = file.read() if size <= SMALL else b""
        self._finish(body)

    def _send_piece(self, file: IO[bytes], length: int) -> None:
        first = self._offset
        file.seek(first)
        stopped = self._repository.registry.transport.stopped
        part = _Part(file, length, stopped, lambda sent: self._progress(first + sent))
        try:
            answer = self._repository.send(
                "PATCH",
                self._there(),
                self._doing,
                headers={
                    "Content-Type": "application/octet-stream",
                    "Content-Length": str(length),
                    "Content-Range": f"{first}-{first + length - 1}",
                },
                body=part,
            )
        finally:
            self.sent += part.sent
        self._move_on(answer)
        self._offset = _offset(answer, first + length)
        self._progress(self._offset)

    def _finish(self, body: bytes) -> None:
        answer = self._repository.send(
            "PUT",
            with_query(self._there(), digest=self._blob.digest),
            self._doing,
            headers={"Content-Type": "application/octet-stream", "Content-Length": str(len(body))},
            body=body,
        )
        self.sent += len(body)
        self._progress(self._blob.size)
        said = answer.headers.get("Docker-Content-Digest", self._blob.digest)
        if said != self._blob.digest:
            raise WrongDigest(
                f"{self._repository.registry.host}: could not {self._doing}: the registry says {said}",
                hint="what stands between here and the registry changes what is sent",
            )

    def _ask_offset(self) -> None:
        """Learn how much the registry has of the upload; a small one begins anew."""
        if self._location is None:
            return
        if self._blob.size <= SMALL:
            self._location = None
            return
        try:
            answer = self._repository.send("GET", self._location, self._doing)
        except NotInRegistry:
            self._location, self._offset = None, 0  # forgotten: by a restart, or by another instance
            return
        self._move_on(answer)
        self._offset = _offset(answer, 0)
        if self._offset > self._blob.size:
            self._location, self._offset = None, 0
        self._progress(self._offset)

    def _can_restart(self, error: RegistryError) -> bool:
        """Whether a fresh upload may do better; raises when the file itself is the reason."""
        if "DIGEST_INVALID" in error.codes or isinstance(error, WrongDigest):
            found = "sha256:" + sha256_of_file(self._path)
            if found != self._blob.digest:
                raise CellblockError(
                    f"{self._path}: its content has another digest, {found}; the registry stored nothing",
                    hint=f"remove {self._path} and build or copy the image again",
                ) from error
            return True
        # 404 and 416: the registry knows nothing of the upload, or counts otherwise; 413: see _PIECES.
        return error.status in (404, 413, 416) and self._location is not None

    def _there(self) -> str:
        if self._location is None:
            raise AssertionError("an upload was begun")
        return self._location

    def _move_on(self, answer: Answer) -> None:
        """The place to go on at, which every answer may change; its query holds the registry's state."""
        location = answer.headers.get("Location")
        if location:
            self._location = urljoin(answer.url, location)
        elif self._location is None:
            raise RegistryError(
                f"{self._repository.registry.host}: could not {self._doing}: its answer has no Location",
                hint="the distribution specification demands it; is a proxy in front of the registry?",
                status=answer.status,
            )


class _Part:
    """`length` bytes of a file from where it stands, as a request's body."""

    def __init__(
        self, file: IO[bytes], length: int, stopped: threading.Event, progress: Callable[[int], None]
    ) -> None:
        self._file = file
        self._left = length
        self._stopped = stopped
        self._progress = progress
        self.sent = 0

    def read(self, size: int = -1, /) -> bytes:
        if self._stopped.is_set():
            raise Stopped("stopped, because another part failed")
        data = self._file.read(self._left if size < 0 else min(size, self._left))
        # What was handed out before is sent when more is asked for.
        self._progress(self.sent)
        self._left -= len(data)
        self.sent += len(data)
        return data


def _offset(answer: Answer, otherwise: int) -> int:
    """Bytes that the registry has, from `Range: 0-LAST`.

    docker's registry says 0-0 of nothing as of one byte: taken for nothing, whose cost is one byte.
    """
    match = re.fullmatch(r"(?:bytes[= ])?0-(\d+)", answer.headers.get("Range", "").strip())
    if match is None:
        return otherwise
    last = int(match[1])
    return last + 1 if last else 0
