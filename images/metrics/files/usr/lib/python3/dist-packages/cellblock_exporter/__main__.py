# SPDX-License-Identifier: Apache-2.0
"""Runs the exporter, `python3 -m cellblock_exporter`, with these settings from the environment.

CELLBLOCK_CONTROLLER        slurmctld, HOST:PORT, or two with a comma between them (controller:6817)
CELLBLOCK_METRICS_SOURCE    openmetrics or commands (commands)
CELLBLOCK_METRICS_INTERVAL  seconds between questions of a kind (30)
CELLBLOCK_METRICS_LISTEN    address and port of /metrics (0.0.0.0:9341)
CELLBLOCK_METRICS_JAIL      folder with copies of the jail volume's records (none)
"""

from __future__ import annotations

import os
import sys
import threading
from functools import partial
from pathlib import Path

from cellblock_exporter.commands import Commands
from cellblock_exporter.jail import write_jail, write_nothing
from cellblock_exporter.openmetrics import OpenMetrics
from cellblock_exporter.poller import Poller
from cellblock_exporter.server import Server
from cellblock_exporter.source import Source

# The longest that one question may take, in seconds; slurm.conf's MessageTimeout is 60.
_TIMEOUT_S = 60.0
# Slurm's major.minor in this image (images/slurm).
_RELEASE_FILE = Path("/usr/lib/cellblock/slurm-release")


def _setting(name: str, default: str) -> str:
    return os.environ.get(f"CELLBLOCK_{name}") or default


def _address(name: str, text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or "," in host or not port.isdigit():
        sys.exit(f"cellblock-metrics: CELLBLOCK_{name} is '{text}'; it must be HOST:PORT")
    return host, int(port)


def main() -> None:
    """Serve until the container ends."""
    interval = _setting("METRICS_INTERVAL", "30")
    if not interval.isdigit() or not 1 <= int(interval) <= 3600:
        sys.exit(
            f"cellblock-metrics: CELLBLOCK_METRICS_INTERVAL is '{interval}'; it must be 1 to 3600 seconds"
        )
    asked_by = _setting("METRICS_SOURCE", "commands")
    if asked_by not in ("openmetrics", "commands"):
        sys.exit(
            f"cellblock-metrics: CELLBLOCK_METRICS_SOURCE is '{asked_by}'; it must be openmetrics or commands"
        )
    source: Source
    if asked_by == "openmetrics":
        controllers = _setting("CONTROLLER", "controller:6817").split(",")
        source = OpenMetrics(*(_address("CONTROLLER", one) for one in controllers))
    else:
        source = Commands(_RELEASE_FILE.read_text(encoding="ascii").strip())
    jail = _setting("METRICS_JAIL", "")
    further = partial(write_jail, folder=Path(jail)) if jail else write_nothing
    poller = Poller(source, int(interval), min(_TIMEOUT_S, max(5.0, int(interval))), further)
    # While a large answer is read, a scrape waits for the interpreter a few times: 1 ms each instead of 5.
    sys.setswitchinterval(0.001)
    threading.Thread(target=poller.run, name="poller", daemon=True).start()
    threading.Thread(target=poller.run_further, name="further", daemon=True).start()
    listen = _address("METRICS_LISTEN", _setting("METRICS_LISTEN", "0.0.0.0:9341"))
    Server(listen, poller.page).serve_forever()


if __name__ == "__main__":
    main()
