# SPDX-License-Identifier: Apache-2.0
"""Accounting in a database of the site's, a real MariaDB that takes nobody without TLS."""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from cellblock.build import BuildRequest, build_images
from cellblock.cluster.backup import back_up, restore
from cellblock.cluster.engine.api import podman_environment
from cellblock.cluster.up import bring_up
from cellblock.cluster.up_request import UpRequest
from cellblock.cluster.upgrading.downgrade import go_back
from cellblock.cluster.upgrading.upgrade import upgrade
from cellblock.errors import CellblockError
from cellblock.events import Events
from tests import documented
from tests.integration.conftest import default_variant, other_variants, running_cluster
from tests.integration.local_cluster import LocalCluster, podman
from tests.ports import free_port

pytestmark = pytest.mark.integration

_NAME = "site_accounting"
_START = """
    install -d -o mysql -g mysql /run/mysqld /var/lib/mysql
    install -d -o mysql -g mysql -m 0700 /run/tls
    install -o mysql -g mysql -m 0400 /tls/* /run/tls/
    mariadb-install-db --no-defaults --user=mysql --datadir=/var/lib/mysql --skip-test-db >/dev/null
    exec setpriv --reuid=mysql --regid=mysql --clear-groups mariadbd \
        --defaults-file=/usr/lib/cellblock/mariadb.cnf --datadir=/var/lib/mysql \
        --port="$PORT" --require-secure-transport=ON \
        --ssl-ca=/run/tls/ca.pem --ssl-cert=/run/tls/server.pem --ssl-key=/run/tls/server.key
"""
_FILE = """\
accounting:
  database:
    host: %(host)s
    port: %(port)d
    name: site_accounting
    user: site
    password_from: %(password)s
    tls: {ca_from: %(ca)s}
node_sets:
  - {name: worker, count: 1}
"""


@dataclass(frozen=True)
class Server:
    """A database server of a site's: its address, its files, and the container that it runs in."""

    host: str
    port: int
    password: Path
    ca: Path
    other_ca: Path
    container: str

    def sql(self, text: str) -> str:
        return podman("exec", self.container, "mariadb", "-Ns", "-e", text)

    def answers(self) -> bool:
        try:
            self.sql("SELECT 1")
        except AssertionError:
            return False
        return True


def openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)


def make_authority(folder: Path, name: str) -> Path:
    """An authority of its own; its certificate."""
    key, certificate = folder / f"{name}.key", folder / f"{name}.pem"
    subject = ("-subj", f"/CN=authority {name}", "-addext", "basicConstraints=critical,CA:TRUE")
    openssl(
        *("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *subject),
        *("-keyout", str(key), "-out", str(certificate)),
    )
    return certificate


def address() -> str:
    """An address of this machine that containers reach."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this machine has no address that a container could reach")
        return str(probe.getsockname()[0])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The server, and files of a password and of authorities: its own, and another."""
    if os.geteuid() != 0:
        pytest.skip("containers need root")
    folder = tmp_path_factory.mktemp("site")
    host, port = address(), free_port()
    tls = folder / "tls"
    tls.mkdir()
    ca = make_authority(folder, "ca")
    request, extensions = folder / "server.csr", folder / "extensions"
    openssl(
        *("req", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=database of the site"),
        *("-keyout", str(tls / "server.key"), "-out", str(request)),
    )
    extensions.write_text(f"subjectAltName=IP:{host}\n")
    openssl(
        *("x509", "-req", "-days", "2", "-in", str(request), "-CA", str(ca), "-CAcreateserial"),
        *("-CAkey", str(folder / "ca.key"), "-extfile", str(extensions), "-out", str(tls / "server.pem")),
    )
    (tls / "ca.pem").write_bytes(ca.read_bytes())
    password = folder / "password"
    password.write_text(secrets.token_hex(16) + "\n")
    container = f"cellblock-test-site-database-{os.getpid()}"
    made = build_images(
        BuildRequest(("database",), default_variant(), (), load=("database",)), Events()
    ).images["database"]
    # As the page says.
    (block,) = documented.blocks_for("accounting.md", "server")
    start = block.text.replace("slurm_acct_db", _NAME).replace("'slurm'", "'site'")
    start = start.replace("PASSWORD", password.read_text().strip())
    subprocess.run(
        [
            *("podman", "run", "--detach", "--name", container, "--network=host"),
            *("--ulimit", "nofile=4096:4096", "--ulimit", "nproc=4096:4096"),
            *("--volume", f"{tls}:/tls:ro", "--tmpfs", "/var/lib/mysql"),
            *("--env", f"PORT={port}"),
            *("--entrypoint", "sh", made.reference, "-euc", _START),
        ],
        check=True,
        capture_output=True,
        env={**os.environ, **podman_environment()},
    )
    found = Server(host, port, password, ca, make_authority(folder, "other"), container)
    try:
        deadline = time.monotonic() + 60
        while not found.answers():
            if time.monotonic() >= deadline:
                pytest.fail(podman("logs", container))
            time.sleep(0.5)
        found.sql(start)
        yield found
    finally:
        podman("rm", "--force", "--volumes", container)


def text_for(server: Server, ca: Path | None = None) -> str:
    return _FILE % {
        "host": server.host,
        "port": server.port,
        "password": server.password,
        "ca": ca or server.ca,
    }


@pytest.fixture(scope="module", params=[default_variant(), *other_variants()])
def sited(request: pytest.FixtureRequest, server: Server) -> Iterator[LocalCluster]:
    """A cluster whose accounting is in the server, and a user."""
    server.sql(f"DROP DATABASE IF EXISTS {_NAME}; CREATE DATABASE {_NAME};")
    with running_cluster("sited", request.param, text=text_for(server)) as running:
        running.add_user("ada")
        yield running


def used(cluster: LocalCluster) -> str:
    asked = ("sacct", "-nXP", "--allusers", "--format=jobid,user,account,state,start,end,alloctres")
    return cluster.on("controller", *asked).ok()


def run(cluster: LocalCluster) -> str:
    """A job of the user's, until the accounting knows its end."""
    number = cluster.jail("srun", "-D/", "sh", "-c", "echo $SLURM_JOB_ID", user="ada").ok().strip()
    cluster.wait_until("it is over", lambda: f"{number}|ada|users|COMPLETED" in used(cluster))
    return number


def name_of(cluster: LocalCluster) -> str:
    return cluster.request.name or ""


def test_jobs_are_accounted_for_in_the_sites_database(sited: LocalCluster, server: Server) -> None:
    number = run(sited)
    table = f"{_NAME}.`{name_of(sited)}_job_table`"
    assert number in server.sql(f"SELECT id_job FROM {table}").split()
    assert "database" not in {container.role for container in sited.status.containers}
    said = sited.on("accounting", "cat", "/run/slurmdbd/slurmdbd.conf").ok()
    assert "StorageParameters=SSL_CA=/etc/cellblock/database-ca.pem" in said
    # No connection without TLS, of slurmdbd's or of ours.
    assert server.sql("SHOW VARIABLES LIKE 'require_secure_transport'").split()[1] == "ON"
    assert server.sql(f"SELECT slurm_release FROM {_NAME}.cellblock_release").strip() == sited.status.release
    # What others of the machine see of it is no password.
    secret = server.password.read_text().strip()
    assert not any(secret in line for _, line in sited.processes("accounting"))


@pytest.mark.others_at_night
def test_a_backup_holds_it_and_a_restore_brings_it_back(
    sited: LocalCluster, server: Server, tmp_path: Path
) -> None:
    run(sited)
    before = used(sited)
    back_up(name_of(sited), tmp_path / "slurm.tar", Events())
    run(sited)
    assert used(sited) != before
    restore(name_of(sited), tmp_path / "slurm.tar", Events())
    assert used(sited) == before
    run(sited)


@pytest.mark.others_at_night
def test_a_new_password_is_in_force_after_an_up(sited: LocalCluster, server: Server) -> None:
    new = secrets.token_hex(16)
    server.sql(f"ALTER USER 'site'@'%' IDENTIFIED BY '{new}'")
    server.password.write_text(new)
    assert bring_up(sited.request, Events()).status.changed
    run(sited)
    assert not bring_up(sited.request, Events()).status.changed


def test_a_server_that_the_authority_does_not_know_is_not_told_the_password(
    sited: LocalCluster, server: Server
) -> None:
    assert sited.request.file
    mine = sited.request.file.read_text()
    sited.request.file.write_text(mine.replace(f"ca_from: {server.ca}", f"ca_from: {server.other_ca}"))
    try:
        with pytest.raises(CellblockError, match=r"container cellblock-.*-accounting ended"):
            bring_up(sited.request, Events())
        logs = podman("logs", f"cellblock-{name_of(sited)}-accounting")
        assert "still waiting for the database to let site in" in logs
        assert "certificate" in logs.lower()
    finally:
        sited.request.file.write_text(mine)
    bring_up(sited.request, Events())
    run(sited)


@pytest.mark.others_at_night
@pytest.mark.parametrize(
    ("key", "content", "says"),
    [
        ("password_from", None, "cannot be read: No such file or directory"),
        ("password_from", "", "holds no password"),
        ("password_from", "two words", "holds no password"),
        ("ca_from", None, "cannot be read: No such file or directory"),
        ("ca_from", "no certificate", "holds no certificate"),
    ],
)
def test_files_that_cannot_be_are_refused_before_anything_is_touched(
    sited: LocalCluster, tmp_path: Path, key: str, content: str | None, says: str
) -> None:
    assert sited.request.file
    mine = sited.request.file.read_text()
    other = tmp_path / "other"
    if content is not None:
        other.write_text(content)
    lines = [
        line.split(f"{key}: ")[0] + f"{key}: {other}" + ("}" if key == "ca_from" else "")
        if f"{key}: " in line
        else line
        for line in mine.splitlines()
    ]
    sited.request.file.write_text("\n".join(lines) + "\n")
    try:
        with pytest.raises(CellblockError, match=says) as caught:
            bring_up(sited.request, Events())
        assert str(other) in caught.value.message
        assert caught.value.hint
    finally:
        sited.request.file.write_text(mine)
    assert not bring_up(sited.request, Events()).status.changed


def test_an_upgrade_and_the_way_back(server: Server) -> None:
    server.sql(f"DROP DATABASE IF EXISTS {_NAME}; CREATE DATABASE {_NAME};")
    with running_cluster("sited", "debian13", text=text_for(server)) as cluster:
        cluster.add_user("ada")
        run(cluster)
        before = used(cluster)
        request = UpRequest(name=cluster.request.name, variant="debian14")
        upgrade(request, Events())
        cluster.shells.close()
        assert used(cluster).startswith(before)
        mark = f"SELECT slurm_release FROM {_NAME}.cellblock_release"
        assert server.sql(mark).strip() == "26.05"
        run(cluster)
        go_back(name_of(cluster), (), Events())
        cluster.shells.close()
        assert used(cluster).startswith(before)
        assert server.sql(mark).strip() == "24.11"
        run(cluster)
