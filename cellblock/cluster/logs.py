# SPDX-License-Identifier: Apache-2.0
"""Prints what the daemons of a cluster logged, merged by time, or follows it (`build.py logs`)."""

from __future__ import annotations

import queue
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import docker
from docker.errors import DockerException, NotFound
from docker.models.containers import Container as Running

from cellblock.cluster.definition.names import name_option
from cellblock.cluster.engine import containers
from cellblock.cluster.engine.api import connect
from cellblock.cluster.engine.container_specs import LABEL_ROLE
from cellblock.cluster.facts import state
from cellblock.errors import CellblockError, UsageError

# RFC 3339 with nanoseconds, by which the engine marks each line.
_STAMP = re.compile(r"^(\S+T\S+) ?")
# All control characters but the tab.
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f]")
# Lines of each host that stand before those to come, as `tail -f` shows them.
_LINES_BEFORE = 10
# How Slurm's daemons name a job: JobId=7, job 7, StepId=7.0, [7.batch], [7].
_JOB = r"(?:JobId=|[Jj]ob |StepId=|\[){number}(?![0-9_])"


@dataclass(frozen=True)
class LogRequest:
    """Whose lines: of a role or host (none: of all), about a job, at most the last `lines` of each host."""

    cluster: str
    where: str | None = None
    job: int | None = None
    lines: int | None = None
    follow: bool = False


@dataclass(frozen=True)
class LogLine:
    """A line that a daemon on `host` printed at `time` (RFC 3339)."""

    host: str
    time: str
    text: str


def log_lines(request: LogRequest) -> Iterator[LogLine]:
    """The lines of `request`, the oldest first; with `follow`, those to come as well, as they come.

    Raises CellblockError when there is no such cluster, or no line is about the job; UsageError when it has
    no such role or host.
    """
    known = state.require(request.cluster)
    pattern = re.compile(_JOB.format(number=request.job)) if request.job is not None else None
    with connect(known.engine) as client:
        chosen = _chosen(client, request)
        if request.follow:
            # Nobody may say anything for hours.
            client.api.timeout = None  # type: ignore[assignment]
        if request.follow:
            lines = _followed(chosen, request)
            yield from (line for line in lines if pattern is None or pattern.search(line.text))
            return
        found = _printed(chosen, request, pattern)
        if pattern and not found:
            raise _no_line(request)
        yield from found


def _no_line(request: LogRequest) -> CellblockError:
    """A job that was never there, or one whose lines are of before the containers were made."""
    option = name_option(request.cluster)
    where = f"of {request.where} " if request.where else ""
    return CellblockError(
        f"no line {where}in the logs of cluster {request.cluster} is about job {request.job}",
        hint=f"`build.py shell --admin{option} squeue` lists the jobs that wait and run; with accounting, "
        f"`build.py shell --admin{option} sacct -aX` those that ended",
    )


def _chosen(client: docker.DockerClient, request: LogRequest) -> list[tuple[str, Running]]:
    """Host and container of each that was asked for."""
    found = list(containers.by_host(client, request.cluster).items())
    if request.where is None:
        return found
    chosen = [(host, one) for host, one in found if request.where in (host, one.labels.get(LABEL_ROLE))]
    if not chosen:
        roles = sorted({one.labels.get(LABEL_ROLE, "") for _, one in found})
        hosts = sorted(host for host, _ in found)
        raise UsageError(
            f"cluster {request.cluster} has no role or host '{request.where}'",
            hint=f"roles: {', '.join(roles)}; hosts: {', '.join(hosts)}",
        )
    return chosen


def _line(host: str, raw: bytes) -> LogLine:
    # Users have a say in what daemons print: it must not move an operator's cursor.
    text = _CONTROL.sub(
        lambda found: f"\\x{ord(found[0]):02x}", raw.decode("utf-8", "replace").rstrip("\r\n")
    )
    found = _STAMP.match(text)
    return LogLine(host, found[1], text[found.end() :]) if found else LogLine(host, "", text)


def _printed(
    chosen: list[tuple[str, Running]], request: LogRequest, pattern: re.Pattern[str] | None
) -> list[LogLine]:
    lines = []
    # Of a job, the last lines about it: others may have printed more since.
    tail: Literal["all"] | int = "all" if pattern or request.lines is None else request.lines
    for host, container in chosen:
        try:
            output = container.logs(timestamps=True, tail=tail)
        except DockerException as error:
            raise _unreadable(host, error) from error
        found = [_line(host, raw) for raw in output.splitlines()]
        if pattern:
            found = [line for line in found if pattern.search(line.text)]
            found = found if request.lines is None else found[len(found) - min(request.lines, len(found)) :]
        lines += found
    return sorted(lines, key=lambda line: line.time)


def _followed(chosen: list[tuple[str, Running]], request: LogRequest) -> Iterator[LogLine]:
    """Lines as they come, until all containers have ended."""
    lines: queue.SimpleQueue[LogLine | CellblockError | None] = queue.SimpleQueue()

    def read(host: str, container: Running) -> None:
        left = b""
        try:
            tail = _LINES_BEFORE if request.lines is None else request.lines
            for chunk in container.logs(timestamps=True, tail=tail, stream=True, follow=True):
                *whole, left = (left + chunk).split(b"\n")
                for raw in whole:
                    lines.put(_line(host, raw))
        except NotFound:
            pass
        except (DockerException, OSError) as error:
            lines.put(_unreadable(host, error))
        finally:
            lines.put(None)

    for host, container in chosen:
        threading.Thread(target=read, args=(host, container), daemon=True).start()
    left = len(chosen)
    while left:
        line = lines.get()
        if isinstance(line, CellblockError):
            raise line
        if line is None:
            left -= 1
        else:
            yield line


def _unreadable(host: str, error: Exception) -> CellblockError:
    return CellblockError(
        f"the log of {host} cannot be read: {error}", hint="`build.py doctor` checks this machine"
    )
