# SPDX-License-Identifier: Apache-2.0
"""Runs apt on a root of its own: lists, keys, status and settings in one folder, nothing of this machine's.

It fetches the lists of any suite and architecture, and answers what apt would install on a system that
has only some packages, without such a system. One folder serves one list of archives, one process at a
time: two apts on one folder would refuse each other.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path

from cellblock.debian.apt_advice import apt_advice
from cellblock.errors import CellblockError
from cellblock.lock.archives import PackageArchive
from cellblock.process import Finished, ProgramFailed, Programs

# The keyrings that mmdebstrap takes for the distributions.
_KEYRINGS = {
    "debian": Path("/usr/share/keyrings/debian-archive-keyring.gpg"),
    "ubuntu": Path("/usr/share/keyrings/ubuntu-archive-keyring.gpg"),
}
# Keys that this machine's administrator trusts, for example of a mirror that signs by itself.
_TRUSTED_PARTS = Path("/etc/apt/trusted.gpg.d")


# apt waits one second before the first further try, two before the second.
_RETRIES = 3
# apt keeps a list compressed when it comes from a local archive that has no other.
_COMPRESSED = (".gz", ".xz", ".bz2", ".lz4", ".zst")


@dataclass(frozen=True)
class Index:
    """One package list that apt fetched: its file and the archive it belongs to.

    `archive` is its number in the list of archives, `release` the fields of the Release file, empty when
    there is none.
    """

    file: Path
    archive: int
    component: str
    release: Mapping[str, str]


@dataclass(frozen=True)
class Choice:
    """One package that apt would install."""

    name: str
    version: str
    architecture: str


class AptRoot:
    """The private apt of one list of archives, in `folder`.

    `distribution` is debian or ubuntu, whose keys are trusted; `architecture` is Debian's name of it;
    `preferences` is a text of apt_preferences(5).
    """

    def __init__(
        self,
        folder: Path,
        distribution: str,
        architecture: str,
        archives: Sequence[PackageArchive],
        *,
        check_valid_until: bool = True,
        preferences: str = "",
    ) -> None:
        self._folder = folder
        self._architecture = architecture
        self._archives = archives
        self._uris = [archive.uris[0] for archive in archives]
        self._check_valid_until = check_valid_until
        self._preferences = preferences
        self._programs = Programs()
        self._prepare(distribution)

    def _prepare(self, distribution: str) -> None:
        for name in ("etc/apt.conf.d", "etc/preferences.d", "lists/partial", "archives/partial", "keys"):
            (self._folder / name).mkdir(parents=True, exist_ok=True)
        keys = self._folder / "keys"
        for old in keys.iterdir():
            old.unlink()
        trusted = sorted(_TRUSTED_PARTS.glob("*.[ag][sp][cg]")) if _TRUSTED_PARTS.is_dir() else []
        for key in (*trusted, _KEYRINGS[distribution]):
            if key.exists():
                (keys / key.name).symlink_to(key)
        settings = {
            # Of this machine's settings nothing is read: Dir holds none.
            "Dir": self._folder,
            "Dir::Etc": self._folder / "etc",
            "Dir::Etc::sourcelist": self._folder / "sources.list",
            "Dir::Etc::sourceparts": "-",
            "Dir::Etc::trusted": "/dev/null",
            "Dir::Etc::trustedparts": keys,
            "Dir::State": self._folder,
            "Dir::State::lists": self._folder / "lists",
            "Dir::State::status": self._folder / "status",
            "Dir::Cache": self._folder,
            "Dir::Cache::archives": self._folder / "archives",
            # The lists as apt's database, kept; that of lists and status together changes each time.
            "Dir::Cache::srcpkgcache": self._folder / "srcpkgcache.bin",
            "Dir::Cache::pkgcache": "",
            "APT::Architecture": self._architecture,
            # As in an image: what a package suggests or recommends is not asked for.
            "APT::Install-Recommends": "false",
            "APT::Install-Suggests": "false",
            "APT::Sandbox::User": "root",
            "APT::Update::Error-Mode": "any",
            "Acquire::Languages": "none",
            # A suite becomes stable one day. On a machine that never saw it before nobody would ask.
            "Acquire::AllowReleaseInfoChange": "true",
            "Acquire::GzipIndexes": "false",
            # Half a minute of silence, in seconds, is a mirror that is gone.
            "Acquire::http::Timeout": "30",
            "Acquire::https::Timeout": "30",
            # A mirror that answers in HTML (a login page of a hotel) is noticed by signature or hash.
            "Acquire::Check-Valid-Until": "true" if self._check_valid_until else "false",
        }
        lines = [f'{name} "{value}";' for name, value in settings.items()]
        lines += ["#clear APT::Architectures;", f'APT::Architectures {{ "{self._architecture}"; }};']
        (self._folder / "apt.conf").write_text("\n".join(lines) + "\n", encoding="utf-8")
        (self._folder / "status").write_text("", encoding="utf-8")
        (self._folder / "etc/preferences.d/cellblock").write_text(self._preferences, encoding="utf-8")
        self._write_sources()

    def _write_sources(self) -> None:
        lines = [archive.line_at(uri) for archive, uri in zip(self._archives, self._uris, strict=True)]
        text = "".join(f"{line}\n" for line in lines)
        (self._folder / "sources.list").write_text(text, encoding="utf-8")

    def update(self) -> None:
        """Fetch the lists that changed, from the first mirror of each archive that serves them.

        Raises CellblockError when an archive's mirrors all fail, saying why.
        """
        while True:
            # Tried again by itself only where nobody else can be asked.
            others = any(
                uri != archive.uris[-1] for uri, archive in zip(self._uris, self._archives, strict=True)
            )
            retries = 0 if others else _RETRIES
            # Without apt's database of 69,000 packages: who asks apt has it made then.
            options = ("-o", f"Acquire::Retries={retries}", "-o", "pkgCacheFile::Generate=false")
            done = self._run("apt-get", "-q", *options, "update")
            if done.status == 0:
                return
            if not self._next_mirrors(done.output + "\n".join(done.tail)):
                raise self._update_failed(done)

    def _next_mirrors(self, output: str) -> bool:
        """Turn to the next mirror of each archive that apt complains about; False when none is left."""
        complaints = [line for line in output.splitlines() if line.startswith(("E: ", "W: ", "Err:"))]
        turned = False
        for number, archive in enumerate(self._archives):
            at = archive.uris.index(self._uris[number])
            named = any(self._uris[number] in line for line in complaints)
            if named and at + 1 < len(archive.uris):
                self._uris[number] = archive.uris[at + 1]
                turned = True
        if turned:
            self._write_sources()
        return turned

    def _update_failed(self, done: Finished) -> CellblockError:
        text = "\n".join(line for line in done.tail if line.startswith(("E: ", "W: ", "Err:")))
        output = f"{done.output}\n{text}"
        expired = re.search(r"Release file for (\S+) is expired \(invalid since ([^)]*)\)", text)
        if expired:
            until = datetime.now(timezone.utc) - _duration(expired[2])
            return CellblockError(
                f"{expired[1]}: this index was valid until {until:%Y-%m-%d %H:%M} UTC: the mirror serves an "
                "old state of the archive, without the security updates since",
                hint="name another with --mirror; if old is what you want, ask for a --snapshot, or set "
                "`check_valid_until: false` for the distribution in images/variants.yaml",
            )
        return CellblockError(
            f"the package lists cannot be fetched\n{_indented(text)}",
            hint=apt_advice(output) or "check the mirror",
        )

    def indexes(self) -> list[Index]:
        """The package lists, in the order of the archives; empty components have none."""
        fields = ("FILENAME", "METAKEY", "SOURCESENTRY", "COMPONENT")
        line = "\t".join(f"$({name})" for name in fields)
        # From the sources alone: apt would make its database of all lists that it finds.
        nothing = self._folder / "no-lists"
        nothing.mkdir(exist_ok=True)
        options = ("-o", f"Dir::State::lists={nothing}", "--no-release-info", "--format", line)
        done = self._checked("apt-get", "indextargets", *options, "Identifier: Packages")
        indexes = []
        for text in done.output.splitlines():
            target, meta, entry, component = text.split("\t")
            name = str(self._folder / "lists" / Path(target).name)
            file = _present(Path(name))
            # An archive need not have each that could be, such as the list of all architectures.
            if file is None:
                continue
            number = int(entry.rsplit(":", 1)[1]) - 1
            # Beside the lists, under the name of the archive: `NAME_InRelease`, `NAME_main_..._Packages`.
            release = _release(Path(name.removesuffix(meta.replace("/", "_"))))
            indexes.append(Index(file, number, component, release))
        return sorted(indexes, key=lambda index: index.archive)

    def text(self, index: Index) -> bytes:
        """The text of a package list."""
        if index.file.suffix in _COMPRESSED:
            helper = ["/usr/lib/apt/apt-helper", "cat-file", str(index.file)]
            return subprocess.run(helper, capture_output=True, check=True).stdout
        return index.file.read_bytes()

    def would_install(self, status: Iterable[bytes], *command: str) -> list[Choice]:
        """What `apt-get COMMAND` would install where the stanzas `status` are what is installed.

        May be asked by several threads. Raises ProgramFailed with apt's words when it cannot be done, or
        would remove something.
        """
        # apt locks the folder of the status file.
        with tempfile.TemporaryDirectory(dir=self._folder, prefix="installed-") as folder:
            file = Path(folder, "status")
            file.write_bytes(b"".join(map(_installed, status)))
            options = ("-o", f"Dir::State::status={file}", "-o", "APT::Get::Remove=false")
            done = self._checked("apt-get", "--simulate", "--yes", "-q", *options, *command)
        found = re.findall(
            r"^Inst (?P<name>[^\s:]+)\S* (?:\[\S+\] )?\((?P<version>\S+) .*\[(?P<arch>\w+)\]\)",
            done.output,
            re.MULTILINE,
        )
        return [Choice(*choice) for choice in found]

    def _checked(self, *argv: str) -> Finished:
        done = self._run(*argv)
        if done.status:
            raise ProgramFailed(done)
        return done

    def _run(self, *argv: str) -> Finished:
        environment = {"APT_CONFIG": str(self._folder / "apt.conf"), "LC_ALL": "C"}
        return self._programs.run(argv, env=environment, check=False)


def _present(file: Path) -> Path | None:
    """The file of a list, compressed or not."""
    candidates = (file, *(file.with_name(file.name + suffix) for suffix in _COMPRESSED))
    return next((one for one in candidates if one.exists()), None)


def _installed(stanza: bytes) -> bytes:
    """A stanza of a package list as one of dpkg's status file."""
    first, _, rest = stanza.partition(b"\n")
    return first + b"\nStatus: install ok installed\n" + rest + b"\n\n"


def _release(name: Path) -> dict[str, str]:
    """The fields of a Release file that fill one line; keys in lower case."""
    for kind in ("InRelease", "Release"):
        path = name.with_name(name.name + kind)
        if path.exists():
            text = path.read_text(encoding="utf-8", errors="replace")
            pairs = re.findall(r"^([A-Z][A-Za-z-]+): *(\S.*)$", text, re.MULTILINE)
            return {key.lower(): value.strip() for key, value in pairs}
    return {}


def _duration(text: str) -> timedelta:
    """What apt writes as `3d 4h 5min 6s`."""
    units = {"d": 86400, "h": 3600, "min": 60, "s": 1}
    return timedelta(seconds=sum(int(n) * units[unit] for n, unit in re.findall(r"(\d+)(d|h|min|s)", text)))


def _indented(text: str) -> str:
    return "\n".join(f"  | {line}" for line in text.splitlines())
