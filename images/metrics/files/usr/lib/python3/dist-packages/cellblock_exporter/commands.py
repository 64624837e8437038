# SPDX-License-Identifier: Apache-2.0
"""Gets Slurm's figures from squeue, scontrol and sdiag, where slurmctld has no endpoints for metrics.

squeue prints chosen fields instead of `--json`: 50,000 jobs are megabytes instead of hundreds of them
(docs/decisions/metrics-exporter.md). openmetrics.py is for newer releases of Slurm.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time

from cellblock_exporter import jobs, nodes, partitions, scheduler
from cellblock_exporter.exposition import Text
from cellblock_exporter.source import AskError

# Half a million jobs with 200 bytes each.
_MOST_BYTES = 100 * 2**20
# Since 23.02 `sdiag --json` has sums, of which the text has rounded means alone.
_SDIAG_JSON = "23.02"
_ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "TZ": "UTC"}


class Commands:
    """Asks by squeue, scontrol and sdiag of Slurm `release`, as major.minor."""

    name = "commands"
    # Partitions last but one: their figures are added up from jobs and nodes.
    kinds = ("jobs", "nodes", "partitions", "scheduler")

    def __init__(self, release: str) -> None:
        self._release = release
        self._jobs: list[jobs.Job] = []
        self._nodes: list[nodes.Node] = []

    def ask(self, kind: str, timeout_s: float) -> bytes:
        """See Source."""
        text = Text()
        try:
            if kind == "jobs":
                mark = f"|{os.urandom(8).hex()}|"
                self._jobs = jobs.read(run(jobs.command(mark), timeout_s), mark)
                jobs.write(text, self._jobs)
            elif kind == "nodes":
                self._nodes = nodes.read(run(nodes.COMMAND, timeout_s))
                nodes.write(text, self._nodes)
            elif kind == "partitions":
                found = partitions.read(run(partitions.COMMAND, timeout_s))
                partitions.write(text, found, self._jobs, self._nodes)
            elif self._release >= _SDIAG_JSON:
                scheduler.write(text, scheduler.read_json(run(("sdiag", "--json"), timeout_s)))
            else:
                scheduler.write(text, scheduler.read_text(run(("sdiag",), timeout_s)))
        except ValueError as error:
            raise AskError(
                f"{kind}: the answer has another form than Slurm {self._release}'s: {error}"
            ) from error
        return text.encode()


def run(command: tuple[str, ...], timeout_s: float) -> str:
    """What `command` prints. Raises AskError when it fails, prints too much or is not over in time."""
    deadline = time.monotonic() + timeout_s
    said = " ".join(command)
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            # One line of the error is enough; more than a pipe holds would stop the command.
            stderr=subprocess.STDOUT,
            env=_ENVIRONMENT,
            start_new_session=True,
        )
    except OSError as error:
        raise AskError(f"{said}: {error.strerror}") from error
    assert process.stdout is not None
    output = bytearray()
    why = ""
    with process.stdout as stdout:
        while not why:
            if not select.select([stdout], [], [], max(0.0, deadline - time.monotonic()))[0]:
                why = f"not over after {timeout_s:.0f} s"
                break
            part = os.read(stdout.fileno(), 2**18)
            if not part:
                break
            output += part
            if len(output) > _MOST_BYTES:
                why = f"printed more than {_MOST_BYTES} bytes"
        if why:
            os.killpg(process.pid, signal.SIGKILL)
    status = process.wait()
    if why or status:
        last = bytes(output[-300:]).decode("utf-8", "replace").strip().rpartition("\n")[2]
        raise AskError(f"{said}: {why or f'status {status}: {last}'}")
    return output.decode("utf-8", "replace")
