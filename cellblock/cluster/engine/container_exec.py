# SPDX-License-Identifier: Apache-2.0
"""Runs a command in a container through the Docker API, and returns its exit status and output.

It takes any container by name. containers.py finds those of a cluster, and shell.py starts podman or docker.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import docker
from docker.utils.socket import frames_iter

# podman 4.3 loses what is printed before it listens: on a busy machine, that of every fourth echo. So the
# command starts when a line is there to read, which comes by the connection that its output goes to.
_WHEN_HEARD = ["sh", "-c", 'read -r _ && exec "$@" </dev/null', "sh"]


def run_inside(client: docker.DockerClient, container: str, command: Sequence[str]) -> tuple[int, bytes]:
    """The status of `command`, run as root in the container of that name, and what it prints.

    Raises docker.errors.DockerException, and OSError when the connection breaks.
    """
    made = client.api.exec_create(container, [*_WHEN_HEARD, *command], stdin=True)
    connection: Any = client.api.exec_start(made["Id"], socket=True)
    try:
        # docker-py wraps a socket that it can only read from then.
        getattr(connection, "_sock", connection).sendall(b"\n")
        output = b"".join(data for _, data in frames_iter(connection, tty=False))  # type: ignore[no-untyped-call]
    finally:
        connection.close()
    return int(client.api.exec_inspect(made["Id"])["ExitCode"] or 0), output
