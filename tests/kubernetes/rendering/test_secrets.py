# SPDX-License-Identifier: Apache-2.0
"""The secrets are made once, in a file of root's alone, and are kept by each render that follows."""

from __future__ import annotations

import base64
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from cellblock.errors import DefinitionError
from cellblock.kubernetes.secrets import write_secrets
from cellblock.paths import PROJECT
from tests.kubernetes.helpers.rendered import FILE, described


def secrets(path: Path) -> dict[str, dict[str, bytes]]:
    """Secret -> file -> content."""
    made: dict[str, Any] = {
        one["metadata"]["name"]: one["data"] for one in yaml.safe_load_all(path.read_text())
    }
    return {
        name: {file: base64.b64decode(text) for file, text in data.items()} for name, data in made.items()
    }


def test_they_are_made_once(tmp_path: Path) -> None:
    path = tmp_path / "secrets.yaml"
    assert write_secrets(described(tmp_path), path)
    assert path.stat().st_mode & 0o777 == 0o600
    first = secrets(path)
    assert {name: sorted(files) for name, files in first.items()} == {
        "slurm-key": ["munge.key"],
        "slurm-tokens": ["jwt_hs256.key"],
        "slurm-database": ["database-password"],
        "login-host-keys": ["ssh_host_ed25519_key", "ssh_host_rsa_key"],
    }
    assert len(first["slurm-key"]["munge.key"]) == 128
    assert not write_secrets(described(tmp_path), path)
    assert secrets(path) == first


def test_what_comes_to_a_cluster_gets_one_and_the_others_stay(tmp_path: Path) -> None:
    path = tmp_path / "secrets.yaml"
    write_secrets(described(tmp_path, FILE.replace("rest: {replicas: 2}\n", "")), path)
    first = secrets(path)
    assert "slurm-tokens" not in first
    write_secrets(described(tmp_path), path)
    assert {**first, "slurm-tokens": secrets(path)["slurm-tokens"]} == secrets(path)


def test_a_mode_that_others_read_by_is_corrected(tmp_path: Path) -> None:
    path = tmp_path / "secrets.yaml"
    write_secrets(described(tmp_path), path)
    first = secrets(path)
    path.chmod(0o644)
    assert write_secrets(described(tmp_path), path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert secrets(path) == first


def test_those_that_are_there_are_not_made(tmp_path: Path) -> None:
    own = FILE + "  secrets: {key: own-key, tokens: own-tokens, database: own-password}\n"
    write_secrets(described(tmp_path, own), tmp_path / "secrets.yaml")
    assert set(secrets(tmp_path / "secrets.yaml")) == {"login-host-keys"}


def test_the_password_of_a_database_of_the_site_comes_from_its_file(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("sesame-street\n")
    there = f"{{host: db.example, password_from: {tmp_path}/password, tls: null}}"
    text = FILE.replace("accounting: {}", f"accounting: {{database: {there}}}")
    write_secrets(described(tmp_path, text), tmp_path / "secrets.yaml")
    assert secrets(tmp_path / "secrets.yaml")["slurm-database"] == {"database-password": b"sesame-street"}


@pytest.mark.parametrize("text", ["{", "a: b", "- x", "data: {munge.key: '?'}"])
def test_another_file_is_not_overwritten(text: str, tmp_path: Path) -> None:
    path = tmp_path / "secrets.yaml"
    path.write_text(text)
    with pytest.raises(DefinitionError, match="holds no Secrets of Cellblock's"):
        write_secrets(described(tmp_path), path)
    assert path.read_text() == text


def test_the_command_writes_both_and_prints_no_secret(tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text(FILE)
    command = [sys.executable, "-m", "cellblock.cli", "render", "kubernetes"]
    command += ["--cluster", str(tmp_path / "cluster.yaml")]
    out = ["--output", str(tmp_path / "out")]

    def run(*more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*command, *more], cwd=PROJECT, capture_output=True, text=True, check=False)

    done = run(*out)
    assert done.returncode == 0, done.stderr
    assert "secrets.yaml: written" in done.stdout
    assert (tmp_path / "out" / ".gitignore").read_text() == "secrets.yaml\n"
    for files in secrets(tmp_path / "out" / "secrets.yaml").values():
        for content in files.values():
            assert base64.b64encode(content).decode() not in done.stdout + done.stderr
    again = run(*out)
    assert "secrets.yaml: as it was" in again.stdout
    refused = run(*out, "--size", "1Gi")
    assert (refused.returncode, "--size does not go with --cluster" in refused.stderr) == (2, True)
    assert run().returncode == 2
