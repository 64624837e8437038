# SPDX-License-Identifier: Apache-2.0
"""Runs restic, and turns its errors into messages that name the next step.

Features differ between restic 0.12 (Ubuntu 22.04), 0.14 (Debian 12) and later: an option is used where
`restic COMMAND --help` lists it. Before 0.17 the exit status says little, so the text of an error decides.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from cellblock.errors import CellblockError
from cellblock.jail.backup import nosymfollow
from cellblock.jail.backup.repository import Repository, shown
from cellblock.process import Finished, Programs

HOST = "cellblock"
"""The host of every snapshot: a job runs on another pod each time, and is to go on from the last one."""
TAG = "cellblock-jail"
"""On every snapshot of Cellblock's; others in the repository are never looked at."""

Line = Callable[[dict[str, Any]], None]


class ResticError(CellblockError):
    """restic failed. `kind` is what `_FAULTS` calls it, or `other`."""

    def __init__(self, message: str, *, hint: str, kind: str, finished: Finished) -> None:
        super().__init__(message, hint=hint)
        self.kind = kind
        self.finished = finished


@dataclass(frozen=True)
class _Fault:
    kind: str
    pattern: str
    what: str
    hint: str


# The first that matches. restic asks whether there is a repository after each failure to reach one, so what
# is about the network comes before that.
_FAULTS = (
    _Fault(
        "password",
        r"wrong password or no key found",
        "the password is not {where}'s",
        "check where it comes from",
    ),
    _Fault("password", r"an empty password is not", "the password is empty", "check where it comes from"),
    _Fault(
        "locked",
        r"already locked|unable to create lock",
        "{where} is in use by another restic: {detail}",
        "wait until that has ended; if its machine is gone for good: restic unlock --remove-all",
    ),
    _Fault(
        "full", r"no space left|disk quota exceeded", "there is no space left: {detail}", "free some space"
    ),
    _Fault(
        "refused",
        r"Access Denied|AccessDenied|InvalidAccessKeyId|SignatureDoesNotMatch|403 Forbidden|401 Unauthorized",
        "the server of {where} refuses: {detail}",
        "check the keys (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY) and their rights",
    ),
    _Fault(
        "network",
        r"connection refused|no such host|i/o timeout|network is unreachable|no route to host|x509:|TLS",
        "{where} cannot be reached: {detail}",
        "check the address and the network, then run this again",
    ),
    _Fault(
        "absent",
        r"Is there a repository at the following|config file.*(not exist|no such)|repository does not exist",
        "there is no repository at {where}",
        "`jail backup VOLUME REPO --init` makes one; or correct the location",
    ),
    _Fault(
        "damaged",
        r"not found in repository|invalid data returned|ciphertext verification failed|unexpected file size"
        r"|repository contains errors|unexpected EOF|[Ii]nvalid file size|[Uu]nexpected content|wrong length"
        r"|data/[0-9a-f]{2}/[0-9a-f]{64}: no such file",
        "{where} is damaged: {detail}",
        "`restic check --read-data` says what; `restic rebuild-index` (later: repair) saves what is left; "
        "older snapshots may be whole: --snapshot",
    ),
)


@dataclass(frozen=True)
class Snapshot:
    """One of Cellblock's snapshots. `time` is as restic writes it (RFC 3339)."""

    id: str
    time: str
    name: str
    image: str
    tree: str = ""

    @property
    def short(self) -> str:
        """The first eight digits, as people write an id."""
        return self.id[:8]


@dataclass(frozen=True)
class Restic:
    """restic on one repository."""

    repository: Repository
    programs: Programs = field(default_factory=Programs)

    @cached_property
    def program(self) -> str:
        """The path of restic. Raises CellblockError when there is none."""
        found = shutil.which("restic")
        if found is None:
            raise CellblockError("restic is not installed", hint="apt-get install restic")
        return found

    def can(self, command: str, option: str) -> bool:
        """Whether this restic's `command` has `option` (with its dashes)."""
        done = self.programs.run([self.program, command, "--help"])
        return re.search(rf"{option}\b", done.output) is not None

    def run(
        self,
        *arguments: str,
        on_json: Line | None = None,
        accept: Sequence[int] = (0,),
        folder: Path | None = None,
        keep_output: bool = True,
    ) -> Finished:
        """Run one command; objects that it prints go to `on_json`. Raises ResticError.

        With `folder`, in that directory, where it follows no symbolic link: see `nosymfollow`.

        A lock that a killed restic left is removed, once, by restic's own rules (its process is gone, or
        it is older than half an hour).
        """
        try:
            return self._once(arguments, on_json, accept, folder, keep_output)
        except ResticError as error:
            if error.kind != "locked":
                raise
            self._once(("unlock",), None, (0,), None, True)
            return self._once(arguments, on_json, accept, folder, keep_output)

    def _once(
        self,
        arguments: Sequence[str],
        on_json: Line | None,
        accept: Sequence[int],
        folder: Path | None,
        keep_output: bool,
    ) -> Finished:
        def read(line: str) -> None:
            if on_json and line.startswith("{"):
                on_json(json.loads(line))

        where = [sys.executable, "-I", nosymfollow.__file__, str(folder)] if folder else []
        environment = {**self.repository.environment, "RESTIC_PROGRESS_FPS": "1", "LC_ALL": "C.UTF-8"}
        done = self.programs.run(
            [*where, self.program, *arguments],
            on_line=read,
            env=environment,
            check=False,
            keep_output=keep_output,
        )
        if done.status in accept:
            return done
        raise self._explained(arguments[0], done)

    def _explained(self, command: str, done: Finished) -> ResticError:
        text = shown("\n".join(line for line in done.tail if not line.startswith('{"message_type":"status"')))
        for fault in _FAULTS:
            if found := re.search(f"(?m)^.*(?:{fault.pattern}).*$", text):
                detail = found[0].strip().removeprefix("Fatal: ")
                what = fault.what.format(where=self.repository, detail=detail)
                return ResticError(what, hint=fault.hint, kind=fault.kind, finished=done)
        lines = "".join(f"\n  | {line}" for line in text.splitlines())
        return ResticError(
            f"`restic {command}` on {self.repository} ended with status {done.status}{lines}",
            hint="correct what it says, then run this again",
            kind="other",
            finished=done,
        )

    def snapshots(self, name: str | None = None) -> list[Snapshot]:
        """Cellblock's snapshots, of the volume `name` or of all, the oldest first. Raises ResticError."""
        done = self.run("snapshots", "--json", "--tag", f"{TAG},volume:{name}" if name else TAG)
        found = sorted(json.loads(done.output) or [], key=lambda one: str(one["time"]))
        return [_snapshot(one) for one in found]

    def listed(self, snapshot: str, on_node: Line) -> None:
        """Tell `on_node` of each file of a snapshot, in restic's words. Raises ResticError."""

        def node(record: dict[str, Any]) -> None:
            if "path" in record and "type" in record:
                on_node(record)

        self.run("ls", "--json", snapshot, on_json=node, keep_output=False)


def _snapshot(record: dict[str, Any]) -> Snapshot:
    tags = dict(_pairs(record.get("tags") or []))
    return Snapshot(
        record["id"], record["time"], tags.get("volume", ""), tags.get("image", ""), record.get("tree", "")
    )


def _pairs(tags: list[str]) -> Iterator[tuple[str, str]]:
    for tag in tags:
        key, _, value = tag.partition(":")
        yield key, value


def pattern(path: bytes | str) -> str:
    """Escape a path into a pattern that matches only it (Go's filepath.Match, as restic uses)."""
    text = path if isinstance(path, str) else path.decode("utf-8", "surrogateescape")
    return re.sub(r"([\\*?\[])", r"\\\1", text)
