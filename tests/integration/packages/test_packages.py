# SPDX-License-Identifier: Apache-2.0
"""What `build.py packages` makes: linted, signed, equal each time, for a Slurm whose headers are given."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from cellblock.build import BuildRequest
from cellblock.errors import UsageError
from cellblock.events import Events
from cellblock.paths import PROJECT
from cellblock.release.packages import PackagesRequest, headers_in, make_packages
from tests.documented import lines_for, type_line
from tests.integration.archive import HAS_A_MIRROR
from tests.integration.packages.conftest import VARIANT, Made

ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="building images needs root")
THOROUGH = pytest.mark.skipif(
    not os.environ.get("CELLBLOCK_PACKAGES"),
    reason="minutes, which no test of a change can wait for: `python3 build.py test --thorough`",
)
pytestmark = [pytest.mark.integration, HAS_A_MIRROR]
RELEASE = re.compile(r"slurm-wlm-basic-plugins \(>= 24\.11\), slurm-wlm-basic-plugins \(<< 24\.12~\)")


def output_of(*argv: str) -> str:
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


def files_of(deb: Path) -> set[str]:
    return {line.split()[-1] for line in output_of("dpkg-deb", "--contents", str(deb)).splitlines()}


@ROOT
def test_each_package_has_its_part(made: Made) -> None:
    jail = files_of(made.deb("cellblock-jail-slurm2411"))
    assert {"./usr/sbin/jail-enter", "./usr/sbin/jail-driver", "./etc/cellblock/jail.fstab"} <= jail
    plugins = "./usr/lib/x86_64-linux-gnu/slurm-wlm"
    assert f"{plugins}/spank_jail.so" in jail
    assert "./usr/lib/x86_64-linux-gnu/security/pam_jail.so" in jail
    pyxis = output_of("dpkg-deb", "--contents", str(made.deb("cellblock-pyxis-slurm2411")))
    assert f"{plugins}/spank_pyxis.so -> pyxis.so" in pyxis
    assert "./usr/share/pyxis/pyxis.conf" in pyxis
    enroot = files_of(made.deb("cellblock-enroot"))
    assert {"./usr/bin/enroot", "./usr/lib/enroot/enroot-hold", "./usr/lib/enroot/enroot-image"} <= enroot
    tools = files_of(made.deb("cellblock-tools"))
    assert {"./usr/bin/cellblock", "./usr/lib/python3/dist-packages/cellblock/jail/assemble.py"} <= tools
    for name in ("cellblock-jail-slurm2411", "cellblock-pyxis-slurm2411"):
        assert RELEASE.search(output_of("dpkg-deb", "--field", str(made.deb(name)), "Depends"))


@ROOT
def test_lintian_and_rpmlint_find_nothing(made: Made) -> None:
    packages = sorted(map(str, made.folder.glob("debian/*.deb")))
    changes = sorted(map(str, made.folder.glob("debian/*.changes")))
    done = subprocess.run(
        ["lintian", "--allow-root", "--fail-on", "error,warning", *packages, *changes],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "")
    rpms = sorted(map(str, made.folder.glob("rpm/*.rpm")))
    config = PROJECT / "deploy/packages/rpm/rpmlint.toml"
    done = subprocess.run(["rpmlint", "-c", str(config), *rpms], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "0 errors, 0 warnings" in done.stdout


@ROOT
def test_an_rpm_holds_what_the_debian_package_does(made: Made, tmp_path: Path) -> None:
    for name in ("cellblock-enroot", "cellblock-jail-slurm2411", "cellblock-pyxis-slurm2411"):
        (rpm,) = made.folder.glob(f"rpm/{name}-*.rpm")
        place = tmp_path / name
        place.mkdir()
        subprocess.run(f"rpm2cpio {rpm} | cpio -id --quiet", shell=True, cwd=place, check=True)  # noqa: S602
        found = {f"./{path.relative_to(place)}" for path in place.rglob("*") if path.is_file()}
        debian = {
            path for path in files_of(made.deb(name)) if "/share/doc/" not in path and "/lintian/" not in path
        }
        assert found >= {path for path in debian if not path.endswith("/") and not path.endswith("pyxis.so")}


@ROOT
def test_the_list_of_digests_is_signed_and_true(made: Made, tmp_path: Path) -> None:
    sums = made.folder / "SHA256SUMS"
    listed = dict(reversed(line.split("  ")) for line in sums.read_text().splitlines())
    there = {str(path.relative_to(made.folder)) for path in made.folder.rglob("*") if path.is_file()}
    assert set(listed) == there - {"SHA256SUMS", "SHA256SUMS.sig"}
    for name, digest in listed.items():
        assert hashlib.sha256((made.folder / name).read_bytes()).hexdigest() == digest
    public, raw = tmp_path / "key.pub", tmp_path / "signature"
    subprocess.run(
        ["openssl", "ec", "-in", made.key, "-pubout", "-out", public], check=True, capture_output=True
    )
    subprocess.run(
        ["openssl", "base64", "-d", "-A", "-in", made.folder / "SHA256SUMS.sig", "-out", raw], check=True
    )
    verify = ["openssl", "dgst", "-sha256", "-verify", str(public), "-signature", str(raw), str(sums)]
    assert "Verified OK" in output_of(*verify)
    document = json.loads((made.folder / "sbom.spdx.json").read_text())
    named = {each["fileName"] for each in document["files"]}
    assert {f"/out/{name}" for name in listed if name.endswith((".deb", ".rpm"))} <= {
        name if name.startswith("/") else f"/{name.removeprefix('./')}" for name in named
    }


@ROOT
def test_the_page_says_how_they_are_made(made: Made, tmp_path: Path) -> None:
    (line, image) = lines_for("packages.md", "test_the_page_says_how_they_are_made")
    assert image.startswith("python3 build.py build jail --output oci:")
    said = type_line(line.replace("/srv", str(tmp_path)) + f" --variant {VARIANT}", tmp_path)
    assert "7 packages" in said
    for path in (tmp_path / "packages").rglob("*.deb"):
        assert path.read_bytes() == (made.folder / "debian" / path.name).read_bytes()


@ROOT
@THOROUGH
def test_a_second_build_gives_the_same_bytes(made: Made, tmp_path: Path) -> None:
    """In another cache, so that everything is compiled anew."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CELLBLOCK_CACHE", str(tmp_path / "cache"))
        make_packages(PackagesRequest(BuildRequest(variant=VARIANT), tmp_path / "again"), Events())
    for path in (tmp_path / "again").rglob("*"):
        if path.is_file():
            assert path.read_bytes() == (made.folder / path.relative_to(tmp_path / "again")).read_bytes(), (
                path
            )


@ROOT
@THOROUGH
@pytest.mark.parametrize("variant", ["debian12", "debian14", "ubuntu24.04", "ubuntu26.04"])
def test_for_other_distributions(variant: str, tmp_path: Path) -> None:
    files = make_packages(PackagesRequest(BuildRequest(variant=variant), tmp_path / "made"), Events())
    assert any("cellblock-jail-slurm" in name and name.endswith(".deb") for name in files)
    assert any("cellblock-tools" in name for name in files) == (variant != "debian12")


@ROOT
@THOROUGH
def test_for_a_slurm_whose_headers_are_given(tmp_path: Path) -> None:
    """As for Slurm 22.05, whose headers are those of Debian 12, on Debian 13."""
    from cellblock.build import build_images

    result = build_images(BuildRequest(images=("toolchain",), variant="debian12", load=True), Events())
    reference = result.images["toolchain"].reference
    opt = tmp_path / "opt/slurm"
    (opt / "include").mkdir(parents=True)
    name = output_of("podman", "create", reference, "true").strip()
    subprocess.run(["podman", "cp", f"{name}:/usr/include/slurm", str(opt / "include")], check=True)
    subprocess.run(["podman", "rm", name], check=True, capture_output=True)
    (line,) = lines_for("packages.md", "test_for_a_slurm_whose_headers_are_given")
    said = type_line(
        line.replace("/srv", str(tmp_path)).replace("--slurm-from /opt/slurm", f"--slurm-from {opt}")
        + f" --variant {VARIANT}",
        tmp_path,
    )
    assert "cellblock-jail-slurm2205" in said
    (deb,) = (tmp_path / "packages-opt").glob("debian/cellblock-jail-slurm2205*.deb")
    assert "./opt/slurm/lib/slurm/spank_jail.so" in files_of(deb)
    assert "slurm-wlm" not in output_of("dpkg-deb", "--field", str(deb), "Depends")


def headers(folder: Path, number: str) -> Path:
    folder.mkdir(parents=True)
    for name in ("slurm.h", "slurm_errno.h", "spank.h"):
        (folder / name).touch()
    (folder / "slurm_version.h").write_text(f"#define SLURM_VERSION_NUMBER {number}\n")
    return folder


def test_headers_are_found_where_slurm_and_debian_put_them(tmp_path: Path) -> None:
    for number, (place, release) in enumerate(
        (("include/slurm", "24.11"), ("usr/include/slurm", "22.05"), ("slurm", "26.05"), ("", "25.05"))
    ):
        major, minor = release.split(".")
        found = headers(tmp_path / str(number) / place, f"0x{int(major):02x}{int(minor):02x}03")
        assert headers_in(tmp_path / str(number)) == (found, release)


@pytest.mark.parametrize(("number", "what"), [("0x150805", "21.08"), ("0x1e0500", "30.05"), ("5", "has no")])
def test_headers_that_are_none_or_of_another_release(tmp_path: Path, number: str, what: str) -> None:
    headers(tmp_path / "slurm", number)
    with pytest.raises(UsageError, match=what):
        headers_in(tmp_path)
    shutil.rmtree(tmp_path / "slurm")
    with pytest.raises(UsageError, match="there are no headers of Slurm"):
        headers_in(tmp_path)
