# SPDX-License-Identifier: Apache-2.0
"""Runs a command in a container, once or until it succeeds, and gets all that it prints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import docker
from docker.utils.socket import frames_iter

# podman 4.3 loses what is printed before it listens: on a busy machine, that of every fourth echo. So the
# command starts when a line is there to read, which comes by the connection that its output goes to.
_WHEN_HEARD = ["sh", "-c", 'read -r _ && exec "$@" </dev/null', "sh"]
# The same until it succeeds, without what it prints. Each start of a command by the engine is 0.2 s of
# processor time (podman, conmon and runc twice), so who waits has it run again inside.
_UNTIL_IT_SUCCEEDS = """\
read -r _ && read -r up _ </proc/uptime || exit
end=$((${up%%.*} + %d))
until "$@" </dev/null >/dev/null 2>&1; do
    read -r up _ </proc/uptime
    [ ${up%%.*} -lt $end ] || exit 1
    sleep 0.1
done
"""


def run_inside(
    client: docker.DockerClient, container: str, command: Sequence[str], patience_s: int = 0
) -> tuple[int, bytes]:
    """The status of `command`, run as root in the container of that name, and what it prints.

    With `patience_s` it is run again, for that many seconds, until it succeeds; then only the status counts.
    Raises docker.errors.DockerException, and OSError when the connection breaks.
    """
    begin = ["sh", "-c", _UNTIL_IT_SUCCEEDS % patience_s, "sh"] if patience_s else _WHEN_HEARD
    made = client.api.exec_create(container, [*begin, *command], stdin=True)
    connection: Any = client.api.exec_start(made["Id"], socket=True)
    try:
        # docker-py wraps a socket that it can only read from then.
        getattr(connection, "_sock", connection).sendall(b"\n")
        output = b"".join(data for _, data in frames_iter(connection, tty=False))  # type: ignore[no-untyped-call]
    finally:
        connection.close()
    return int(client.api.exec_inspect(made["Id"])["ExitCode"] or 0), output
