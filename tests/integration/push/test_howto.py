# SPDX-License-Identifier: Apache-2.0
"""How-to pages about images, typed line by line in a copy of the checkout: push.md, attest.md, locking.md,
look-inside.md and jail-kubernetes.md, with a real registry, cosign and skopeo.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from cellblock.paths import PROJECT
from tests.documented import blocks_for, lines_for, type_line
from tests.integration.checkout import copy_checkout
from tests.integration.conftest import default_variant
from tests.integration.push.test_refusals import self_signed
from tests.integration.push.verifiers import Cosign, Skopeo
from tests.integration.registry import RunningRegistry, get, repository_of, running_registry

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(os.geteuid() != 0, reason="building images needs root"),
    pytest.mark.skipif(default_variant() != "debian13", reason="the pages' examples are of debian13"),
]

# Images that a line names, and what stands for all of them where that is the point.
_NAMED = re.compile(r" (worker|base|jail|slurm)\b| #all$")


@dataclass(frozen=True)
class Desk:
    """Where a reader of the pages sits: a checkout whose images are built, and a registry."""

    folder: Path
    host: str
    repository: str

    def type(self, line: str, **variables: str) -> str:
        """Type a line; what stands for the registry is this test's own.

        What is done to all images is done to one here: it is the same for each, and takes its time.
        """
        if re.match(r"python3 build\.py (push|attest|audit|build) ", f"{line} ") and not _NAMED.search(line):
            line += " worker"
        line = line.replace("registry.example:5000/slurm", self.repository).replace(
            "HOST/PATH", self.repository
        )
        # A comparison ends with 1 where there is a difference, as diff(1).
        allowed = (0, 1) if " diff " in line else (0,)
        said = re.sub(r"\bREPO\b", self.repository, line)
        return type_line(
            said, self.folder, variables={"HOME": str(self.folder), **variables}, allowed=allowed
        )

    def digest(self, image: str) -> str:
        """Of what `digests.json` says that was pushed."""
        return str(json.loads((self.folder / "digests.json").read_text())[image]["digest"])


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the checkout, with the images of a cluster built; a key, as attest.md makes one."""
    folder = copy_checkout(tmp_path_factory.mktemp("howto"))
    type_line("python3 build.py build", folder)
    for line in lines_for("attest.md", "test_signatures")[:2]:
        type_line(line, folder)
    return folder


@pytest.fixture
def desk(checkout: Path, registry: RunningRegistry, request: pytest.FixtureRequest) -> Desk:
    return Desk(checkout, registry.host, f"{registry.host}/{repository_of(request)}")


def test_pushing(desk: Desk, tmp_path: Path) -> None:
    plain, one, first, second, index, authority = lines_for("push.md", "test_pushing")
    desk.type(f"{plain} #all")
    desk.type(one)
    (line,) = re.findall(r"`(jq -r [^`]*)`", (PROJECT / "docs/push.md").read_text())
    if shutil.which("jq"):
        assert desk.type(line).startswith(f"{desk.repository}/worker@sha256:")
    # There is one architecture here.
    for line in (first, second, index.replace("amd64,arm64", "amd64")):
        desk.type(line)
    tags = json.loads(get(f"http://{desk.host}/v2/{desk.repository.partition('/')[2]}/worker/tags/list"))[
        "tags"
    ]
    assert {"debian13", "debian13-amd64"} <= set(tags)
    certificate, key = self_signed(tmp_path)
    with running_registry(tmp_path / "own", certificate=(certificate, key)) as own:
        line = authority.replace("registry.example:5000", own.host)
        # One image is enough.
        desk.type(line.replace("--ca /etc/ssl/cluster-ca.crt", f"base --ca {certificate}"))


def test_audit_and_attest(desk: Desk) -> None:
    said = {line: desk.type(line) for line in lines_for("attest.md", "test_audit_and_attest")}
    bill = next(text for line, text in said.items() if " sbom " in line)
    assert '"bomFormat":"CycloneDX"' in bill


@pytest.fixture
def signed(desk: Desk, cosign: Cosign) -> Desk:
    """What the page's lines about signatures push and verify."""
    path = f"{cosign.program.parent}:{os.environ['PATH']}"
    for line in lines_for("attest.md", "test_signatures")[2:]:
        # The registry of the test has no certificate.
        said = desk.type(re.sub(r"^(cosign \S+)", r"\1 --allow-http-registry", line), PATH=path)
        assert not line.startswith("cosign") or "signatures were verified against" in said
    desk.type("python3 build.py push REPO worker -v debian13 --digests digests.json")
    return desk


def test_signatures(signed: Desk) -> None:
    assert signed.digest("worker").startswith("sha256:")


def test_a_policy_of_who_pulls(signed: Desk, skopeo: Skopeo, tmp_path: Path) -> None:
    (tmp_path / "registries.d").mkdir()
    for block in blocks_for("attest.md", "test_a_policy_of_who_pulls"):
        text = block.text.replace("REPO", signed.repository)
        text = text.replace("/etc/pki/cosign.pub", str(signed.folder / "cosign.pub"))
        path = "policy.json" if block.language == "json" else "registries.d/cellblock.yaml"
        (tmp_path / path).write_text(text)
    reference = f"{signed.repository}/worker:debian13"
    assert skopeo.copy(reference, tmp_path, tmp_path / "layout").returncode == 0
    # Nobody signed it by that name.
    other = reference.replace("debian13", "other")
    copy = ["skopeo", "copy", "--quiet", "--src-tls-verify=false", "--dest-tls-verify=false"]
    subprocess.run([*copy, f"docker://{reference}", f"docker://{other}"], check=True)
    assert "is not accepted" in skopeo.copy(other, tmp_path, tmp_path / "other").stderr


def test_a_signature_by_hand(signed: Desk) -> None:
    (line,) = lines_for("attest.md", "test_a_signature_by_hand")
    at = f"http://{signed.host}/v2/{signed.repository.partition('/')[2]}/worker"
    tag = f"{signed.digest('worker').replace(':', '-')}.sig"
    accept = {"Accept": "application/vnd.oci.image.manifest.v1+json"}
    layer = json.loads(get(f"{at}/manifests/{tag}", accept))["layers"][0]
    (signed.folder / "payload.json").write_bytes(get(f"{at}/blobs/{layer['digest']}"))
    said = signed.type(line, SIG=layer["annotations"]["dev.cosignproject.cosign/signature"])
    assert "Verified OK" in said


def test_locks(desk: Desk) -> None:
    said = [desk.type(line) for line in lines_for("locking.md", "test_locks")]
    assert len(said) == 4
    assert (desk.folder / "locks/debian13.lock.yaml").exists()


def test_looking_inside(desk: Desk, tmp_path: Path) -> None:
    # What others built or pulled: an image of another variant, one in a layout, and one by its digest.
    desk.type("python3 build.py build base --variant debian12")
    desk.type("python3 build.py push REPO worker --digests digests.json")
    pull = "skopeo copy --quiet --src-tls-verify=false docker://REPO/worker:debian13"
    desk.type(f"{pull} oci:{tmp_path}/pulled:worker")
    for line in lines_for("look-inside.md", "test_looking_inside"):
        typed = line.replace("/tmp/pulled", f"{tmp_path}/pulled").replace(
            "sha256:4f7c...", desk.digest("worker")
        )
        typed = typed.replace("worker:debian12 worker:debian13", "base:debian12 base:debian13")
        if "dot -Tpdf" in line and not shutil.which("dot"):
            typed = line.partition(" |")[0]
        desk.type(f"{typed} > shown" if ">" not in typed else typed)
    assert (desk.folder / "images.svg").read_text().startswith("<svg")
    assert "<html" in (desk.folder / "report.html").read_text()


def test_manifests_of_pushed_images(desk: Desk) -> None:
    build, push, render = lines_for("jail-kubernetes.md", "test_manifests_of_pushed_images")
    desk.type(build)
    desk.type(push)
    for image in ("jail-init", "jail"):
        render = render.replace(f"/{image}@DIGEST", f"/{image}@{desk.digest(image)}")
    desk.type(render.replace("s3:https://HOST/BUCKET", "s3:https://registry.example/bucket"))
    job = yaml.safe_load((desk.folder / "manifests/jail-init.yaml").read_text())
    assert desk.digest("jail") in json.dumps(job)
