# SPDX-License-Identifier: Apache-2.0
"""Asks the new slurmdbd, before an upgrade, what it would do to the accounting's database (`slurmdbd -u`).

The cluster goes on running meanwhile, and the database is not changed.
"""

from __future__ import annotations

from pathlib import Path

import docker
from docker.errors import ContainerError, DockerException

from cellblock.cluster.definition.names import name_option
from cellblock.cluster.engine.container_specs import container_name
from cellblock.cluster.engine.containers import thrown_away
from cellblock.errors import CellblockError

# As role-accounting does (images/accounting); slurmdbd -u changes nothing. Its status says whether it would
# convert, and is 1 for errors as well.
_SCRIPT = """
    set -e
    SECRETS=/run/secrets/cellblock CONF=/run/slurmdbd
    install -d -o slurm -g slurm -m 0700 $CONF /var/lib/slurm/archive
    install -o slurm -g slurm -m 0600 /etc/cellblock/slurmdbd.conf $CONF/slurmdbd.conf
    printf 'StoragePass=%s\\n' "$(cat $SECRETS/database-password)" >>$CONF/slurmdbd.conf
    export SLURM_CONF=$CONF/slurm.conf
    setpriv --reuid=slurm --regid=slurm --init-groups timeout 60 slurmdbd -u 2>&1 || true
"""


def ask_slurmdbd(client: docker.DockerClient, cluster: str, image: str, folder: Path) -> str:
    """What `slurmdbd -u` of the accounting's `image` says of the database of `cluster`.

    Raises CellblockError when that slurmdbd does not take the database, or does not reach it.
    """
    name = container_name(cluster, "ask")
    with thrown_away(client, name):
        try:
            said: bytes | str = client.containers.run(
                image,
                name=name,
                entrypoint=["sh", "-c", _SCRIPT],
                command=[],
                # The database hears that container's address alone.
                network_mode=f"container:{container_name(cluster, 'accounting')}",
                volumes={
                    str(folder / "config" / "accounting"): {"bind": "/etc/cellblock", "mode": "ro"},
                    str(folder / "secrets" / "accounting"): {"bind": "/run/secrets/cellblock", "mode": "ro"},
                },
                cap_drop=["ALL"],
                cap_add=["CHOWN", "DAC_OVERRIDE", "FOWNER", "SETGID", "SETUID"],
                stderr=True,
            )
        except ContainerError as error:
            said = error.stderr or b""
        except DockerException as error:
            raise CellblockError(
                f"cluster {cluster}: the new slurmdbd cannot be asked about the database: {error}",
                hint="`build.py doctor`",
            ) from error
    text = said.decode("utf-8", "replace").strip() if isinstance(said, bytes) else str(said)
    if "onversion needed" not in text:
        raise CellblockError(
            f"cluster {cluster}: the new slurmdbd does not take the database; nothing was changed: {text}",
            hint="docs/cluster-upgrade.md says which releases it reads; "
            f"`build.py logs database{name_option(cluster)}` shows what the database says",
        )
    return text
