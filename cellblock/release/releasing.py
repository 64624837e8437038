# SPDX-License-Identifier: Apache-2.0
"""Makes a release of Cellblock from a clean clone: changelog, version, tag, sources, packages, images.

The clone's own `build.py` makes all of it, so nothing of a developer's folder gets in. The new commit and tag
take author and date from the commit that is released, so a dry run and the release give the same digests.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cellblock import paths
from cellblock.attest.signing import Signer, signer_of_option
from cellblock.errors import CellblockError, UsageError
from cellblock.events import Events, Output
from cellblock.graph import build_order
from cellblock.process import Programs
from cellblock.project import Project
from cellblock.variants import choose_variant

CHECKSUMS = "SHA256SUMS"
_VERSION = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)")
_UNRELEASED = "## Unreleased"


@dataclass(frozen=True)
class ReleaseRequest:
    """What to release: `version` of the checkout's HEAD, into the new folder `output`.

    `variants` and `images` as `build` has them (none: its defaults). `key` signs images and checksums;
    `repository` is where images go, unless this is a `dry_run`, which changes nothing but `output`.
    """

    version: str
    output: Path
    dry_run: bool = False
    variants: tuple[str, ...] = ()
    images: tuple[str, ...] = ()
    key: str | None = None
    repository: str | None = None
    project: Path = paths.PROJECT


@dataclass(frozen=True)
class Released:
    """`files` in `output`, by their paths, with their SHA-256."""

    tag: str
    commit: str
    files: dict[str, str]


def release(request: ReleaseRequest, events: Events) -> Released:
    """Make the release. Raises UsageError for a version or folder that cannot be, and CellblockError."""
    _check(request)
    signer = signer_of_option(request.key)  # a wrong key or password is told at once
    tag = f"v{request.version}"
    output = request.output.absolute()
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="cellblock-release-", dir="/var/tmp") as folder:
        clone = Path(folder, "cellblock")
        _git(request.project, "clone", "--quiet", "--no-hardlinks", ".", str(clone))
        with events.step("release", "changelog, version and tag"):
            commit = _commit(clone, request.version, tag)
        with events.step("release", "sources"):
            _archive(clone, request.version, tag, output)
        _packages(clone, request, output, events)
        _images(clone, request, output, events)
        if not request.dry_run:
            _publish(clone, request, tag, output, events)
    files = _checksums(request, tag, commit, output, signer)
    return Released(tag, commit, files)


def notes(changelog: str) -> str:
    """What CHANGELOG.md says of what is not released yet; empty where it says nothing."""
    _, found, rest = changelog.partition(f"\n{_UNRELEASED}\n")
    return re.split(r"^## ", rest, maxsplit=1, flags=re.MULTILINE)[0].strip() if found else ""


def _check(request: ReleaseRequest) -> None:
    project = request.project
    if not _VERSION.fullmatch(request.version):
        raise UsageError(
            f"'{request.version}' is no version", hint="three numbers, as 0.2.0: docs/versions.md says which"
        )
    if request.output.exists() and any(request.output.iterdir()):
        raise UsageError(f"{request.output} is not empty", hint="name a new folder")
    if not request.dry_run and not request.repository:
        raise UsageError(
            "a release is pushed, and no repository is named",
            hint="add --repository HOST/PATH, or --dry-run, which makes all of it and publishes nothing",
        )
    definitions = Project(project / "images")
    for name in request.variants:
        choose_variant(definitions.variants, name)
    if request.images:
        build_order(definitions.images, request.images)
    changed = _git(project, "status", "--porcelain").strip()
    if changed:
        raise CellblockError(
            f"{project} has changes that are in no commit, which a release would lack: "
            f"{changed.splitlines()[0][3:]}",
            hint="commit them, or put them aside: git stash --include-untracked",
        )
    before = _version_of(project)
    if _numbers(request.version) < _numbers(before):
        raise UsageError(
            f"{request.version} is older than {before}, this checkout's", hint="name a later one"
        )
    if _git(project, "tag", "--list", f"v{request.version}").strip():
        raise UsageError(
            f"v{request.version} is released already: there is such a tag", hint="name a later version"
        )
    if f"\n## {request.version}\n" in (project / "CHANGELOG.md").read_text(encoding="utf-8"):
        raise UsageError(
            f"{request.version} is in CHANGELOG.md already, as a version of the past", hint="name a later one"
        )
    if not notes((project / "CHANGELOG.md").read_text(encoding="utf-8")):
        raise CellblockError(
            f"{project / 'CHANGELOG.md'} has nothing under '{_UNRELEASED}'",
            hint="write there what users notice, and commit it",
        )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def _version_of(project: Path) -> str:
    found = re.search(r'^version = "([^"]+)"$', (project / "pyproject.toml").read_text(), re.MULTILINE)
    assert found  # it is one of our own files
    return found[1]


def _commit(clone: Path, version: str, tag: str) -> str:
    """Write the version and the changelog, and commit and tag them. The commit's id."""
    before, said = _version_of(clone), notes((clone / "CHANGELOG.md").read_text(encoding="utf-8"))
    for name, old, new in (
        ("pyproject.toml", f'version = "{before}"', f'version = "{version}"'),
        ("cellblock/__init__.py", f'__version__ = "{before}"', f'__version__ = "{version}"'),
        ("CHANGELOG.md", f"\n{_UNRELEASED}\n", f"\n{_UNRELEASED}\n\n## {version}\n"),
    ):
        path = clone / name
        path.write_text(path.read_text(encoding="utf-8").replace(old, new, 1), encoding="utf-8")
    author, email, date = _git(clone, "log", "-1", "--format=%an%n%ae%n%cI").splitlines()
    who = {
        f"GIT_{role}_{what}": value
        for role in ("AUTHOR", "COMMITTER")
        for what, value in (("NAME", author), ("EMAIL", email), ("DATE", date))
    }
    plain = ("-c", "commit.gpgsign=false", "-c", "tag.gpgsign=false")
    _git(clone, *plain, "commit", "--quiet", "--all", "--message", f"Release {version}", variables=who)
    message = f"Cellblock {version}\n\n{_plain(said)}"
    _git(clone, *plain, "tag", "--annotate", "--message", message, tag, variables=who)
    return _git(clone, "rev-parse", "HEAD").strip()


def _plain(text: str) -> str:
    """A line that begins with # would be a comment of the tag's."""
    return re.sub(r"^#+ ", "", text, flags=re.MULTILINE)


def _archive(clone: Path, version: str, tag: str, output: Path) -> None:
    name = f"cellblock-{version}"
    tar = output / f"{name}.tar"
    _git(clone, "archive", "--format=tar", f"--prefix={name}/", f"--output={tar}", tag)
    subprocess.run(["gzip", "-9n", str(tar)], check=True)
    text = (clone / "CHANGELOG.md").read_text(encoding="utf-8").partition(f"\n## {version}\n")[2]
    (output / "NOTES.md").write_text(
        re.split(r"^## ", text, maxsplit=1, flags=re.MULTILINE)[0].strip() + "\n"
    )


def _packages(clone: Path, request: ReleaseRequest, output: Path, events: Events) -> None:
    for variant in request.variants or (None,):
        folder = output / "packages" / (variant or "")
        _build(clone, ["packages", *_variant(variant), "--output", str(folder)], events)


def _images(clone: Path, request: ReleaseRequest, output: Path, events: Events) -> None:
    """Build the images with SBOM and provenance into an OCI layout for each variant."""
    sign = ["--key", request.key, "--for", request.repository or "localhost"] if request.key else []
    for variant in request.variants or (None,):
        layout = output / "images" / (variant or "default")
        arguments = [*request.images, *_variant(variant), "--attest", *sign, "--output", f"oci:{layout}"]
        _build(clone, ["build", *arguments], events)


def _publish(clone: Path, request: ReleaseRequest, tag: str, output: Path, events: Events) -> None:
    """Push the images, then take commit and tag over. What is said to the world at last is the person's."""
    assert request.repository is not None
    for variant in request.variants or (None,):
        layout = output / "images" / (variant or "default")
        tags = ["--tag", request.version] if variant is None else ["--tag", f"{variant}-{request.version}"]
        where = [request.repository, *request.images, *_variant(variant), "--from", f"oci:{layout}", *tags]
        _build(
            clone, ["push", *where, "--digests", str(output / f"digests-{variant or 'default'}.json")], events
        )
    _git(request.project, "pull", "--quiet", "--ff-only", str(clone), "HEAD")
    _git(request.project, "fetch", "--quiet", str(clone), f"refs/tags/{tag}:refs/tags/{tag}")


def _variant(variant: str | None) -> list[str]:
    return ["--variant", variant] if variant else []


def _command(clone: Path, *arguments: str) -> list[str]:
    return ["python3", str(clone / "build.py"), *arguments]


def _build(clone: Path, arguments: Sequence[str], events: Events) -> None:
    def line(text: str) -> None:
        events.emit(Output("release", arguments[0], text))

    with events.step("release", f"build.py {arguments[0]}"):
        Programs().run(_command(clone, *arguments), on_line=line, keep_output=False)


def _checksums(
    request: ReleaseRequest, tag: str, commit: str, output: Path, signer: Signer | None
) -> dict[str, str]:
    """Write release.json and SHA256SUMS, signed where there is a signer. Path -> SHA-256."""
    facts = {"version": request.version, "tag": tag, "commit": commit, "dry_run": request.dry_run}
    (output / "release.json").write_text(json.dumps(facts, indent=2) + "\n")
    files = {}
    for path in sorted(output.rglob("*")):
        name = str(path.relative_to(output))
        if path.is_file() and not name.startswith((CHECKSUMS, "images/")):
            files[name] = _digest(path)
        elif path.name == "index.json" and path.is_file():
            files[name] = _digest(path)  # a layout's blobs have their digests for names
    text = "".join(f"{digest}  {name}\n" for name, digest in files.items())
    (output / CHECKSUMS).write_text(text)
    if signer:
        (output / f"{CHECKSUMS}.sig").write_bytes(base64.b64encode(signer.sign(text.encode())) + b"\n")
    return files


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        total = hashlib.sha256()
        while data := file.read(1 << 20):
            total.update(data)
    return total.hexdigest()


def _git(folder: Path, *arguments: str, variables: dict[str, str] | None = None) -> str:
    command = ["git", "-C", str(folder), *arguments]
    done = Programs().run(command, env=variables, check=False)
    if done.status:
        raise CellblockError(
            f"`{' '.join(command[:6])}` failed: {' '.join(done.tail)}",
            hint="correct what git says, then run this again",
        )
    return done.output
