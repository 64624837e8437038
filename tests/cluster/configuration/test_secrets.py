# SPDX-License-Identifier: Apache-2.0
"""Secrets are made when a cluster is made, and nobody else can read them."""

from __future__ import annotations

import stat
import subprocess
from pathlib import Path

import pytest

from cellblock.cluster.configuration import secrets, ssh_keys
from cellblock.errors import CellblockError


@pytest.fixture
def made(tmp_path: Path) -> Path:
    secrets.make_secrets(tmp_path / "secrets", "test")
    return tmp_path / "secrets"


def test_files_are_0600_and_folders_0700(made: Path) -> None:
    assert stat.S_IMODE(made.stat().st_mode) == 0o700
    for path in made.rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_what_each_role_sees(made: Path) -> None:
    assert {path.name for path in (made / "munge").iterdir()} == {"munge.key"}
    assert {path.name for path in (made / "login").iterdir()} == {
        "munge.key",
        "authorized_keys",
        "ssh_host_ed25519_key",
        "ssh_host_ed25519_key.pub",
        "ssh_host_rsa_key",
        "ssh_host_rsa_key.pub",
    }


def test_the_munge_key_is_random_and_the_same_everywhere(made: Path, tmp_path: Path) -> None:
    key = (made / "munge" / "munge.key").read_bytes()
    secrets.make_secrets(tmp_path / "other", "other")
    assert len(key) == 128
    assert key == (made / "login" / "munge.key").read_bytes()
    assert key != (tmp_path / "other" / "munge" / "munge.key").read_bytes()


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_with_auth_slurm_its_key_takes_the_place_of_munges(made: Path) -> None:
    munge = {name for name in files(made) if name.endswith("munge.key")}
    others = files(made) - munge
    secrets.make_secrets(made, "test", auth="slurm")
    keys = {f"{role}/slurm.jwks" for role in ("slurm", "controller", "login", "accounting")}
    assert files(made) == others | keys
    assert len({(made / name).read_bytes() for name in keys}) == 1
    (key,) = secrets.read_slurm_keys(made).keys
    # Another one each time; and back.
    secrets.make_slurm_key(made)
    assert secrets.read_slurm_keys(made).keys[0].secret != key.secret
    secrets.make_secrets(made, "test")
    assert files(made) == others | munge


def test_the_users_key_opens_the_login_node(made: Path) -> None:
    public = secrets.ssh_key(made).with_suffix(".pub").read_text()
    assert (made / "login" / "authorized_keys").read_text() == public
    assert public.startswith("ssh-ed25519 ")


def test_making_them_again_changes_none(made: Path) -> None:
    before = {path: path.read_bytes() for path in made.rglob("*") if path.is_file()}
    secrets.make_secrets(made, "test")
    assert {path: path.read_bytes() for path in made.rglob("*") if path.is_file()} == before


def test_a_killed_run_leaves_no_half_key_in_use(tmp_path: Path) -> None:
    login = tmp_path / "secrets" / "login"
    login.mkdir(parents=True)
    (login / "ssh_host_ed25519_key.new").write_text("half")
    secrets.make_secrets(tmp_path / "secrets", "test")
    assert "OPENSSH PRIVATE KEY" in (login / "ssh_host_ed25519_key").read_text()
    assert not list(login.glob("*.new*"))


def key_of(folder: Path, role: str) -> bytes:
    path = folder / role / secrets.JWT_KEY
    return path.read_bytes() if path.exists() else b""


def test_only_a_cluster_with_tokens_has_a_key_of_them(made: Path) -> None:
    assert not list(made.rglob(secrets.JWT_KEY))
    secrets.make_secrets(made, "test", tokens=True)
    assert {path.parent.name for path in made.rglob(secrets.JWT_KEY)} == {"controller", "accounting"}
    key = key_of(made, "controller")
    assert len(key) == 32
    assert key == key_of(made, "accounting")
    secrets.make_secrets(made, "test", tokens=True)
    assert key_of(made, "controller") == key
    secrets.make_secrets(made, "test")
    assert not list(made.rglob(secrets.JWT_KEY))


def test_a_change_of_the_key_that_was_interrupted_is_made_whole(made: Path) -> None:
    secrets.make_secrets(made, "test", tokens=True)
    (made / "controller" / secrets.JWT_KEY).write_bytes(b"x" * 32)
    secrets.make_secrets(made, "test", tokens=True)
    assert key_of(made, "controller") == key_of(made, "accounting") != b"x" * 32


def test_without_ssh_keygen_the_message_names_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CellblockError, match="ssh-keygen is not installed") as caught:
        secrets.make_secrets(tmp_path / "secrets", "test")
    assert "openssh-client" in caught.value.hint


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CellblockError, match="cannot be written"):
        secrets.make_secrets(tmp_path / "file" / "secrets", "test")


def test_the_host_key_is_named_as_ssh_shows_it(made: Path) -> None:
    key = made / "login" / "ssh_host_ed25519_key.pub"
    shown = subprocess.run(["ssh-keygen", "-lf", str(key)], check=True, capture_output=True, text=True).stdout
    assert ssh_keys.host_key_fingerprint(made) == shown.split()[1]
    key.write_text("ssh-ed25519 !\n")
    assert ssh_keys.host_key_fingerprint(made) == ""
    key.unlink()
    assert ssh_keys.host_key_fingerprint(made) == ""
