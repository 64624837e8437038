# SPDX-License-Identifier: Apache-2.0
"""Runs Debian's docker-registry for a benchmark, with the benchmark's images in it."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from cellblock.bench.inputs.import_images import layout
from cellblock.errors import CellblockError

_CONFIGURATION = """\
version: 0.1
log: {{level: error, accesslog: {{disabled: true}}}}
storage:
  filesystem: {{rootdirectory: "{folder}"}}
http: {{addr: "{host}"{tls}}}
"""
_TLS = ', tls: {{certificate: "{folder}/registry.crt", key: "{folder}/registry.key"}}'
_WAIT_S = 10


@contextmanager
def registry(
    folder: Path, names: Iterable[str], address: str = "127.0.0.1", *, tls: bool = False
) -> Iterator[str]:
    """The host:port of a registry on a free port of `address`, which has bench/NAME:1 for each of `names`.

    Keeps its files in `folder`, which several may share; with `tls` it has a certificate that nobody signed.
    Raises CellblockError when docker-registry or skopeo is missing or fails.
    """
    for tool in ("docker-registry", "skopeo"):
        if not shutil.which(tool):
            raise CellblockError(f"{tool} is not installed", hint=f"apt-get install {tool}")
    with socket.socket() as chosen:
        chosen.bind((address, 0))
        port = chosen.getsockname()[1]
    host = f"{address}:{port}"
    configuration = folder / f"registry-{port}.yml"
    if tls:
        _certificate(folder, address)
    secured = _TLS.format(folder=folder) if tls else ""
    configuration.write_text(_CONFIGURATION.format(folder=folder / "registry", host=host, tls=secured))
    with subprocess.Popen(
        [
            # It ends with this process, however that ends.
            *("setpriv", "--pdeathsig", "TERM"),
            *("docker-registry", "serve", str(configuration)),
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as server:
        try:
            _wait(address, port)
            for name in names:
                push(f"oci:{layout()}:{name}", f"docker://{host}/bench/{name}:1")
            yield host
        finally:
            server.terminate()


def _certificate(folder: Path, address: str) -> None:
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=bench"]
    names = ["-addext", f"subjectAltName=IP:{address}"]
    files = ["-keyout", str(folder / "registry.key"), "-out", str(folder / "registry.crt")]
    subprocess.run([*command, *names, *files], check=True, capture_output=True)


def _wait(address: str, port: int) -> None:
    deadline = time.monotonic() + _WAIT_S
    while time.monotonic() < deadline:
        with socket.socket() as tried:
            if not tried.connect_ex((address, port)):
                return
        time.sleep(0.1)
    raise CellblockError(
        f"docker-registry does not answer on {address}:{port} after {_WAIT_S} s",
        hint="start `docker-registry serve` by hand to see what it says",
    )


def push(source: str, target: str, options: Iterable[str] = ()) -> None:
    """Copy an image by skopeo. Raises CellblockError."""
    command = ["skopeo", "copy", "--quiet", "--dest-tls-verify=false", *options, source, target]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CellblockError(
            f"skopeo copy ended with status {done.returncode}: {done.stderr.strip()}",
            hint="correct what it says, then run the benchmark again",
        )
