# SPDX-License-Identifier: Apache-2.0
"""What `cluster rotate` refuses before a cluster is asked, its record, and the files of new secrets.

tests/integration/roles/test_rotation.py rotates those of a cluster that runs.
"""

from __future__ import annotations

import json
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from cellblock.cluster.configuration import secrets
from cellblock.cluster.facts import rotation_record, state, upgrade_record
from cellblock.cluster.facts.rotation_record import RotationRecord
from cellblock.cluster.facts.upgrade_record import UpgradeRecord
from cellblock.cluster.rotating.rotation import plan, rotate
from cellblock.errors import CellblockError, UsageError
from cellblock.events import Events

REST: dict[str, dict[str, object]] = {"rest": {"role": "rest", "rest_port": 6820}}
OWN: dict[str, dict[str, object]] = {"accounting": {"role": "accounting"}, "database": {"role": "database"}}
SITES: dict[str, object] = {
    "accounting": {
        "database": {"host": "db", "password_from": "/etc/slurm/password", "tls": None, "name": "acct"}
    },
    "node_sets": [{"name": "worker", "count": 1}],
}


def keep_cluster(containers: dict[str, dict[str, object]], file: dict[str, object] | None = None) -> None:
    state.folder("test").mkdir(parents=True)
    state.write(
        state.ClusterState(
            *("test", "debian13", "24.11", "podman", [], [], 2222, "/volume", containers), file=file or {}
        )
    )


def test_all_are_those_that_the_cluster_has() -> None:
    keep_cluster({**REST, **OWN})
    assert plan("test", ["all"]).secrets == ("tokens", "database", "logins", "hosts", "munge")
    assert plan("test", ["munge", "logins", "munge"]).secrets == ("logins", "munge")


def test_daemons_have_one_key_of_the_two() -> None:
    keep_cluster({}, {"auth": "slurm"})
    found = plan("test", ["all"])
    assert (found.secrets, set(found.passed_over)) == (
        ("logins", "hosts", "slurm"),
        {"tokens", "database"},
    )
    with pytest.raises(CellblockError, match="has `auth: slurm`, and so no key of munge's") as caught:
        plan("test", ["munge"])
    assert "`build.py cluster rotate slurm --name test`" in caught.value.hint


def test_all_says_what_the_cluster_has_not() -> None:
    keep_cluster({})
    found = plan("test", ["all"])
    assert found.secrets == ("logins", "hosts", "munge")
    assert "no REST API" in found.passed_over["tokens"]
    assert "no accounting" in found.passed_over["database"]


@pytest.mark.parametrize(("asked", "says"), [(["passwords"], "no secret 'passwords'"), ([], "no secret is")])
def test_secrets_that_there_are_not(asked: list[str], says: str) -> None:
    keep_cluster({})
    with pytest.raises(UsageError, match=says) as caught:
        rotate("test", asked, Events())
    assert "tokens, database, logins, hosts, munge, slurm; or all" in caught.value.hint


def test_the_password_of_a_database_of_the_sites_is_the_sites() -> None:
    keep_cluster({"accounting": {"role": "accounting"}}, SITES)
    with pytest.raises(CellblockError, match="a database of the site's") as caught:
        rotate("test", ["database"], Events())
    assert "/etc/slurm/password" in caught.value.message
    assert "build.py up --cluster FILE --name test" in caught.value.hint


def test_there_is_no_cluster() -> None:
    with pytest.raises(CellblockError, match="there is no cluster nowhere"):
        rotate("nowhere", ["munge"], Events())
    assert not state.folder("nowhere").exists()


def test_not_while_the_cluster_is_of_two_releases() -> None:
    keep_cluster({})
    upgrade_record.write(
        UpgradeRecord("test", "debian13", "24.11", "debian14", "26.05", "podman", "/b.tar", 1, {})
    )
    with pytest.raises(CellblockError, match="is being upgraded"):
        rotate("test", ["munge"], Events())


def test_one_that_was_interrupted_goes_on_with_what_is_left() -> None:
    keep_cluster({**REST, **OWN})
    every = plan("test", ["all"]).secrets
    rotation_record.write(RotationRecord("test", every, ("hosts", "munge"), "begun"))
    again = plan("test", ["all"])
    assert (again.secrets, again.goes_on) == (("hosts", "munge"), True)
    # What began goes first, whatever is asked for.
    assert plan("test", ["tokens"]).secrets == ("hosts", "munge", "tokens")
    with pytest.raises(CellblockError, match="rotation of hosts, munge was interrupted") as caught:
        rotation_record.refuse_unfinished("test", "no")
    assert "cluster rotate tokens database logins hosts munge --name test" in caught.value.hint


def test_before_it_has_begun_nothing_is_in_its_way() -> None:
    keep_cluster({})
    rotation_record.write(RotationRecord("test", ("munge",), ("munge",)))
    rotation_record.refuse_unfinished("test", "no")


@pytest.mark.parametrize("text", ["", "{}", '{"name": 1', '{"name": "test", "asked": 1, "left": 2}'])
def test_a_record_that_cannot_be_read(text: str) -> None:
    keep_cluster({})
    path = state.folder("test") / state.ROTATION
    path.write_text(text)
    with pytest.raises(CellblockError, match=str(path)) as caught:
        rotation_record.read("test")
    assert "remove the file" in caught.value.hint


def test_the_record_goes_with_the_secrets() -> None:
    keep_cluster({})
    rotation_record.write(RotationRecord("test", ("munge",), ("munge",), "begun"))
    assert "munge" in json.loads((state.folder("test") / state.ROTATION).read_text())["left"]
    state.forget("test")
    assert rotation_record.read("test") is None


@pytest.mark.parametrize(
    ("make", "files"),
    [
        (secrets.make_jwt_key, {"controller/jwt_hs256.key", "accounting/jwt_hs256.key"}),
        (secrets.make_password, {"database/database-password", "accounting/database-password"}),
        (
            lambda folder: secrets.make_login_key(folder, "test"),
            {"ssh/id_ed25519", "ssh/id_ed25519.pub", "login/authorized_keys"},
        ),
        (
            lambda folder: secrets.make_host_keys(folder, "test"),
            {f"login/ssh_host_{kind}_key{end}" for kind in ("rsa", "ed25519") for end in ("", ".pub")},
        ),
        (
            secrets.make_munge_key,
            {f"{role}/munge.key" for role in ("munge", "controller", "login", "accounting")},
        ),
    ],
)
def test_new_secrets_take_the_place_of_the_old_ones(
    tmp_path: Path, make: Callable[[Path], object], files: set[str]
) -> None:
    folder = tmp_path / "secrets"
    secrets.make_secrets(folder, "test", tokens=True)
    before = contents(folder)
    make(folder)
    after = contents(folder)
    assert {name for name in after if after[name] != before.get(name)} == files
    assert before.keys() == after.keys()
    assert not {before[name] for name in files} & set(after.values())
    assert all(stat.S_IMODE((folder / name).stat().st_mode) == 0o600 for name in after)
    # What `up` makes of it afterwards is the same.
    secrets.make_secrets(folder, "test", tokens=True)
    assert contents(folder) == after
    for private in (folder / "ssh/id_ed25519", folder / "login/ssh_host_rsa_key"):
        made = subprocess.run(["ssh-keygen", "-y", "-f", private], capture_output=True, text=True, check=True)
        assert made.stdout.split()[:2] == private.with_suffix(".pub").read_text().split()[:2]


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
