# SPDX-License-Identifier: Apache-2.0
"""Makes debs and RPMs for machines that have a Slurm already, by the image `packages` (`build.py packages`).

    DIR/debian/   *.deb, *.changes, *.buildinfo
    DIR/rpm/      *.rpm
    DIR/sbom.spdx.json, DIR/SHA256SUMS, and with a key DIR/SHA256SUMS.sig

The signature is over SHA256SUMS, as of `cosign sign-blob`: base64 of what `openssl dgst -sha256 -verify`
takes.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import yaml

from cellblock import paths
from cellblock.attest.bill import bill_of
from cellblock.attest.signing import Signer
from cellblock.attest.spdx import write_spdx
from cellblock.build import BuildRequest, build_images
from cellblock.errors import CellblockError, UsageError
from cellblock.events import Events
from cellblock.oci.contents import ContentsReader
from cellblock.release.attesting import created_of
from cellblock.release.subjects import SubjectRequest, open_subjects
from cellblock.slurm_releases import MAJOR

IMAGE = "packages"
"""The image that makes them for a variant's own Slurm."""
GIVEN = "packages-given"
"""What it is called in the folder of a site that is written for another Slurm."""
SUMS = "SHA256SUMS"
OLDEST = "22.05"
_BILL = "sbom.spdx.json"
# What an earlier run may have left in the folder, below it and right in it.
_BELOW = {"debian": (".deb", ".changes", ".buildinfo"), "rpm": (".rpm",)}
_TOP = (_BILL, SUMS, f"{SUMS}.sig")
_HEADERS = "slurm-headers"
# 0x180b05 is 24.11.5.
_NUMBER = re.compile(r"^#define\s+SLURM_VERSION_NUMBER\s+0x([0-9a-f]{6})\b", re.MULTILINE)
_NEEDED = ("slurm.h", "slurm_errno.h", "slurm_version.h", "spank.h")


@dataclass(frozen=True)
class PackagesRequest:
    """Which packages: for the Slurm of the build's variant, or for that whose headers are in `slurm`.

    `plugin_dir` is the PluginDir of that Slurm; None: Debian's.
    """

    build: BuildRequest
    output: Path
    slurm: Path | None = None
    plugin_dir: str | None = None
    signer: Signer | None = None


def make_packages(request: PackagesRequest, events: Events) -> tuple[str, ...]:
    """Build the packages and write them below `request.output`; the paths of all files in there, sorted.

    Raises UsageError for headers that are none and a folder of something else, and as `build_images` does.
    """
    _check_folder(request.output)
    name, sites = IMAGE, request.build.sites
    if request.slurm is not None or request.plugin_dir is not None:
        name, sites = GIVEN, (*sites, _site(request.slurm, request.plugin_dir))
    build = replace(request.build, images=(name,), sites=sites)
    result = build_images(build, events)
    asked = SubjectRequest((name,), result.variant.name, sites=build.sites)
    with open_subjects(asked, events) as (subject,):
        files = _files(ContentsReader(subject.layout, keep=lambda entry: True), subject.image)
        files[_BILL] = write_spdx(bill_of(subject, created=created_of(subject)))
    sums = "".join(f"{_sha256(data)}  {name}\n" for name, data in sorted(files.items())).encode()
    files[SUMS] = sums
    if request.signer:
        files[f"{SUMS}.sig"] = base64.b64encode(request.signer.sign(sums)) + b"\n"
    _write(request.output, files)
    return tuple(sorted(files))


def headers_in(folder: Path) -> tuple[Path, str]:
    """The folder of Slurm's headers in `folder`, and the release.

    `folder` is an unpacked libslurm-dev, what `make install` of Slurm made, or an include folder.

    Raises UsageError when they are not there, or of a release that the plugins do not know.
    """
    for place in ("", "slurm", "include/slurm", "usr/include/slurm"):
        found = folder / place
        if all((found / name).is_file() for name in _NEEDED):
            break
    else:
        raise UsageError(
            f"--slurm-from {folder}: there are no headers of Slurm ({', '.join(_NEEDED)})",
            hint="give the prefix that Slurm was installed to, or DIR of `dpkg-deb -x libslurm-dev*.deb DIR`",
        )
    number = _NUMBER.search((found / "slurm_version.h").read_text(encoding="utf-8", errors="replace"))
    if not number:
        raise UsageError(
            f"--slurm-from: {found / 'slurm_version.h'} has no SLURM_VERSION_NUMBER",
            hint="give headers as Slurm installs them, not those of its source tree",
        )
    release = f"{int(number[1][:2], 16)}.{int(number[1][2:4], 16):02}"
    if release not in MAJOR or release < OLDEST:
        raise UsageError(
            f"--slurm-from {folder}: the plugins are not written for Slurm {release}",
            hint=f"releases that they know: {', '.join(one for one in MAJOR if one >= OLDEST)}",
        )
    return found, release


def _site(slurm: Path | None, plugin_dir: str | None) -> Path:
    """A site's folder with an image like `packages` for other headers: its name is of what is in it."""
    if plugin_dir is not None and not re.fullmatch(r"(/[\w.+-]+)+/?", plugin_dir):
        raise UsageError(
            f"--plugin-dir {plugin_dir}: not an absolute path of letters, digits and ._+-",
            hint="`scontrol show config | grep PluginDir` says what it is",
        )
    plugin_dir = plugin_dir and plugin_dir.rstrip("/")
    headers = (
        {path.name: path.read_bytes() for path in sorted(headers_in(slurm)[0].glob("*.h"))} if slurm else {}
    )
    text = (paths.PROJECT / "images" / IMAGE / "image.yaml").read_text(encoding="utf-8")
    said = json.dumps([plugin_dir, text, {name: _sha256(data) for name, data in headers.items()}])
    digest = _sha256(said.encode())[:16]
    folder = paths.cache() / _HEADERS / digest
    if folder.is_dir():
        return folder  # another run may read it at this moment
    definition = yaml.safe_load(text)
    if headers:
        definition["build"]["sources"][_HEADERS] = f"/src/{_HEADERS}"
        # Objects are kept by these lines, too: what was compiled with other headers has another key.
        definition["build"]["run"].insert(0, f": headers {digest}")
    if plugin_dir:
        definition["build"]["run"] = [
            f"export PLUGIN_DIR={plugin_dir}; {line}" for line in definition["build"]["run"]
        ]
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{digest}-", dir=folder.parent))
    (partial / _HEADERS / "slurm").mkdir(parents=True)
    for name, data in headers.items():
        (partial / _HEADERS / "slurm" / name).write_bytes(data)
    (partial / GIVEN).mkdir()
    (partial / GIVEN / "image.yaml").write_text(yaml.safe_dump(definition, sort_keys=False), encoding="utf-8")
    try:
        partial.rename(folder)
    except OSError:  # another run was first
        shutil.rmtree(partial)
    return folder


def _files(reader: ContentsReader, image: object) -> dict[str, bytes]:
    contents = reader.image(image)  # type: ignore[arg-type]
    return {
        path.removeprefix("out/"): contents.read(path) or b""
        for path, entry in contents.entries.items()
        if path.startswith("out/") and entry.kind == "file"
    }


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _check_folder(output: Path) -> None:
    """Raise UsageError for a folder with something else in it than packages, and for one that cannot be
    written: before minutes of compiling.
    """
    if str(output).startswith("oci:"):
        raise UsageError(
            f"--output {output}: packages are files in a folder, and no image layout",
            hint=f"--output {str(output).removeprefix('oci:')}",
        )
    if output.exists() and not output.is_dir():
        raise UsageError(f"--output {output}: is no folder", hint="give a new folder")
    there = next(one for one in (output.absolute(), *output.absolute().parents) if one.exists())
    try:
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        raise UsageError(
            f"--output {output}: {there} cannot be written: {error.strerror}",
            hint="give a folder that you may write, on a filesystem with room",
        ) from None
    if not output.exists():
        return
    for path in sorted(output.iterdir()):
        kinds = _BELOW.get(path.name) if path.is_dir() else None
        inside = sorted(path.iterdir()) if kinds else ()
        strange = next((one for one in inside if one.suffix not in (kinds or ())), None)
        if not kinds and (path.name not in _TOP or path.is_dir()):
            strange = path
        if strange:
            raise UsageError(
                f"--output {output}: holds what is not of packages, as {strange.relative_to(output)}",
                hint="give a new folder, or an empty one",
            )


def _write(output: Path, files: dict[str, bytes]) -> None:
    strangers: Sequence[str] = ()
    if output.is_dir():
        there = (str(path.relative_to(output)) for path in output.rglob("*") if path.is_file())
        strangers = sorted(set(there) - set(files))
    if strangers:
        raise CellblockError(
            f"--output {output}: holds files that are not of these packages, as {strangers[0]}",
            hint=f"give an empty folder, or remove what is there: rm -r {output}",
        )
    for name, data in files.items():
        path = output / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        except OSError as error:
            raise CellblockError(
                f"{path}: cannot be written: {error.strerror}; {output} does not hold all packages",
                hint="make room (`df -h`), then run this again: nothing is compiled a second time",
            ) from None
