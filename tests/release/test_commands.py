# SPDX-License-Identifier: Apache-2.0
"""`build.py audit`, `sbom` and `attest` on images of a store, as a person runs them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from cellblock.cli.app import app
from cellblock.errors import CellblockError, UsageError
from cellblock.oci.layout import Layout
from cellblock.store.image_store import image_store
from tests.oci.layers import make_image, member

VARIANT = ("-v", "debian13")


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Layout:
    monkeypatch.setenv("CELLBLOCK_CACHE", str(tmp_path / "cache"))
    return image_store()


def invoke(*args: str) -> Result:
    """Run a target; CellblockErrors come out as the application raises them."""
    result = CliRunner().invoke(app, [*args, *VARIANT])
    if isinstance(result.exception, CellblockError):
        raise result.exception
    return result


def test_an_audit_with_findings_fails_and_names_them(store: Layout) -> None:
    image = make_image(store, "localhost/cellblock/worker:debian13", [member("etc/munge/munge.key", "k")])
    result = invoke("audit", "worker", "--json")
    (finding,) = json.loads(result.stdout)["findings"]
    assert result.exit_code == 1
    assert finding["path"] == "/etc/munge/munge.key"
    assert finding["layer"] == image.manifest.layers[0].digest
    text = invoke("audit").stdout
    assert "worker:debian13, layer" in text
    assert text.rstrip().endswith(" 1 finding")


def test_an_audit_without_findings_is_done(store: Layout) -> None:
    make_image(store, "localhost/cellblock/worker:debian13", [member("etc/motd", "")])
    assert invoke("audit").exit_code == 0


def test_a_policy_can_be_given(store: Layout, tmp_path: Path) -> None:
    make_image(store, "localhost/cellblock/worker:debian13", [member("etc/munge/munge.key", "k")])
    policy = tmp_path / "mine.yaml"
    policy.write_text("origins: [x]\nexceptions: [{check: secret, image: worker, reason: a test's}]\n")
    result = invoke("audit", "--policy", str(policy), "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["accepted"][0]["reason"] == "a test's"


def test_what_is_not_built_is_named(store: Layout) -> None:
    make_image(store, "localhost/cellblock/worker:debian13", [member("etc/motd", "")])
    with pytest.raises(CellblockError, match="store has no image login of variant debian13"):
        invoke("audit", "login", "worker")
    with pytest.raises(UsageError, match="there is no image 'wroker'; did you mean 'worker'"):
        invoke("audit", "wroker")


def test_a_layout_of_others_is_audited_by_the_names_that_people_give(store: Layout, tmp_path: Path) -> None:
    layout = Layout(tmp_path / "oci")
    make_image(layout, "worker:debian13", [member("etc/motd", "")])
    assert invoke("audit", "--from", f"oci:{tmp_path}/oci").exit_code == 0
    with pytest.raises(UsageError, match="is no OCI image layout"):
        invoke("audit", "--from", f"oci:{tmp_path}/none")


@pytest.mark.parametrize(("form", "key"), [("spdx", "spdxVersion"), ("cyclonedx", "bomFormat")])
def test_an_sbom_is_printed_or_written(store: Layout, tmp_path: Path, form: str, key: str) -> None:
    make_image(store, "localhost/cellblock/worker:debian13", [member("usr/bin/x", "x")])
    printed = invoke("sbom", "worker", "--format", form).stdout
    assert key in json.loads(printed)
    invoke("sbom", "worker", "--format", form, "-o", str(tmp_path / "it.json"))
    assert (tmp_path / "it.json").read_text() == printed.rstrip("\n")


def test_attesting_lists_what_was_attached_and_writes_it(store: Layout, tmp_path: Path) -> None:
    image = make_image(store, "localhost/cellblock/worker:debian13", [member("usr/bin/x", "x")])
    result = invoke("attest", "worker", "--sbom-only", "--output", str(tmp_path / "out"), "--json")
    attached = json.loads(result.stdout)["localhost/cellblock/worker:debian13"]
    assert {each["digest"] for each in attached} == {each.digest for each in store.referrers(image.digest)}
    written = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert written == ["worker.cdx.json", "worker.spdx.json"]
    with pytest.raises(UsageError, match="cannot hold attestations"):
        invoke("attest", "--from", "engine")
