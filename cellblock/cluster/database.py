# SPDX-License-Identifier: Apache-2.0
"""Dumps and loads the accounting's database, by MariaDB's own clients, in a container.

They run in the container of the cluster's own database server. For a database on a site's own server they
run in a new container of the image `accounting`, because slurmdbd's may be stopped.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import zstandard
from docker.errors import DockerException

from cellblock.cluster.definition.cluster_file import ClusterFile
from cellblock.cluster.definition.names import name_option
from cellblock.cluster.engine.api import connect
from cellblock.cluster.engine.container_specs import container_name
from cellblock.cluster.engine.containers import thrown_away
from cellblock.cluster.facts import state
from cellblock.cluster.shell import exec_argv
from cellblock.errors import CellblockError

_NAME = "slurm_acct_db"
# Tables are locked by nobody, and rows are not held in memory.
_DUMP = ("--single-transaction", "--quick", "--routines", "--triggers", "--hex-blob")
_CHUNK = 1 << 20
_CLIENT = "database-client"
_OPTIONS = "/run/slurmdbd/client.cnf"
# As role-accounting does (images/accounting).
_SCRIPT = """
    set -eu
    SECRETS=/run/secrets/cellblock CONF=/run/slurmdbd
    . /usr/lib/cellblock/waiting.sh
    . /usr/lib/cellblock/conversion.sh
    install -d -m 0700 $CONF
    install -m 0600 /etc/cellblock/slurmdbd.conf $CONF/slurmdbd.conf
    printf 'StoragePass=%s\\n' "$(cat $SECRETS/database-password)" >>$CONF/slurmdbd.conf
    write_client_options
    exec sleep infinity
"""


@dataclass(frozen=True)
class _Clients:
    """Where the clients run, their options, and the database."""

    host: str
    options: tuple[str, ...]
    database: str


def dump(known: state.ClusterState, target: Path) -> None:
    """Write what the database holds, in one transaction, to the new file `target`, compressed by zstd.

    Raises CellblockError when a client fails, and OSError.
    """
    compressor = zstandard.ZstdCompressor(write_checksum=True)
    with (
        _clients(known) as clients,
        target.open("xb") as file,
        _command(
            known,
            clients.host,
            ("mariadb-dump", *clients.options, *_DUMP, clients.database),
            stdout=subprocess.PIPE,
        ) as process,
        compressor.stream_writer(file, closefd=False) as packed,
    ):
        assert process.stdout is not None
        shutil.copyfileobj(process.stdout, packed, _CHUNK)


def load(known: state.ClusterState, packed: IO[bytes]) -> None:
    """Fill the database anew with what `dump` wrote. slurmdbd is stopped: nobody connects in between."""
    with _clients(known) as clients:
        name = clients.database
        empty = f"DROP DATABASE IF EXISTS {name}; CREATE DATABASE {name};"
        with _command(known, clients.host, ("mariadb", *clients.options, "-e", empty)):
            pass
        with _command(
            known, clients.host, ("mariadb", *clients.options, name), stdin=subprocess.PIPE
        ) as process:
            assert process.stdin is not None
            with process.stdin:
                zstandard.ZstdDecompressor().copy_stream(packed, process.stdin)


@contextmanager
def _clients(known: state.ClusterState) -> Iterator[_Clients]:
    if "database" in known.containers:
        yield _Clients("database", (), _NAME)
        return
    accounting = ClusterFile.model_validate(known.file).accounting
    database = accounting.external.name if accounting and accounting.external else _NAME
    folder = state.folder(known.name)
    name = container_name(known.name, _CLIENT)
    with connect(known.engine) as client, thrown_away(client, name):
        try:
            client.containers.run(
                known.containers["accounting"]["image"],
                name=name,
                entrypoint=["tini", "--", "sh", "-c", _SCRIPT],
                command=[],
                detach=True,
                # The cluster's may be gone: its daemons are stopped.
                network_mode="host",
                volumes={
                    str(folder / "config" / "accounting"): {"bind": "/etc/cellblock", "mode": "ro"},
                    str(folder / "secrets" / "accounting"): {"bind": "/run/secrets/cellblock", "mode": "ro"},
                },
                cap_drop=["ALL"],
                cap_add=["CHOWN", "DAC_OVERRIDE", "FOWNER"],
            )
            ready = ("sh", "-c", f"until [ -s {_OPTIONS} ]; do sleep 0.1; done")
            with _command(known, _CLIENT, ("timeout", "30", *ready)):
                pass
            yield _Clients(_CLIENT, (f"--defaults-file={_OPTIONS}",), database)
        except DockerException as error:
            raise CellblockError(
                f"cluster {known.name}: a client of the database cannot be started: {error}",
                hint="`build.py doctor` checks this machine",
            ) from error


@contextmanager
def _command(
    known: state.ClusterState,
    host: str,
    command: Sequence[str],
    *,
    stdin: int | None = None,
    stdout: int | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """A command in a container. Raises CellblockError with what it says when it fails."""
    with tempfile.TemporaryFile() as said:
        argv = exec_argv(known, host, command)
        with subprocess.Popen(argv, stdin=stdin, stdout=stdout, stderr=said) as process:
            broken = False
            try:
                yield process
            except BrokenPipeError:
                broken = True  # it has ended, and says why
        if process.returncode or broken:
            said.seek(0)
            text = said.read().decode("utf-8", "replace").strip()[-2000:]
            raise CellblockError(
                f"`{' '.join(command)}` in container {container_name(known.name, host)} ended with status "
                f"{process.returncode}: {text}",
                hint=f"`build.py logs {host}{name_option(known.name)}` shows its log",
            )
