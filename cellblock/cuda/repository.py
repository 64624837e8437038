# SPDX-License-Identifier: Apache-2.0
"""Describes NVIDIA's CUDA repository as an apt archive, for variants that declare `cuda: {from: nvidia}`.

It checks that the declared key signs the repository (keyring.py), and that the declared version of CUDA is
there. build/extra_archives.py gives it to apt. The repository is flat: one folder of packages without suites.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from cellblock.cache_key import digest_of
from cellblock.cuda.keyring import make_keyring
from cellblock.errors import CellblockError
from cellblock.files.flock import locked
from cellblock.lock.apt_root import AptRoot
from cellblock.lock.archives import archives_of
from cellblock.variants import NvidiaRepository, Variant


@dataclass(frozen=True)
class CudaRepository:
    """The archive of one variant's CUDA; `folder` holds what is known of all of them."""

    variant: Variant
    source: NvidiaRepository
    folder: Path

    @property
    def keyring(self) -> Path:
        """The one key that is trusted for this archive, once `ensure` has made it."""
        return self.folder / self.source.fingerprint / "key.gpg"

    @property
    def line(self) -> str:
        """The sources.list(5) line of the archive."""
        return f"deb [signed-by={self.keyring}] {self.source.repository.rstrip('/')} ./"

    @property
    def local(self) -> tuple[Path, ...]:
        """The folder of an archive on this machine."""
        parts = urlsplit(self.source.repository)
        return (Path(unquote(parts.path)),) if parts.scheme == "file" else ()

    def ensure(self) -> None:
        """Have the key, and know that the archive is signed with it and holds the version.

        Raises CellblockError saying which of these is not so.
        """
        where = f"variant {self.variant.name}: cuda"
        with locked(self.folder / "lock"):
            if not self.keyring.is_file():
                make_keyring(self.source.key, self.source.fingerprint, self.keyring, where)
            apt = AptRoot(
                self.folder / digest_of([self.line, self.variant.arch.debian])[:16],
                self.variant.distribution.id,
                self.variant.arch.debian,
                archives_of([self.line]),
            )
            try:
                apt.update()
            except CellblockError as error:
                raise self._not_usable(error, where) from error
            self._check_version(apt, where)

    def _not_usable(self, error: CellblockError, where: str) -> CellblockError:
        text = error.message
        if re.search(
            r"NO_PUBKEY|is not signed|BADSIG|no longer signed|EXPKEYSIG|not verif", text, re.IGNORECASE
        ):
            return CellblockError(
                f"{where}: {self.source.repository} is not signed with the key "
                f"{self.source.fingerprint}\n{text}",
                hint="do not use it; ask who runs this mirror, or take NVIDIA's own",
            )
        return CellblockError(
            f"{where}: {self.source.repository} cannot be used: {text}",
            hint="correct `repository` in variants.yaml: the URL of the folder that holds Packages.gz",
        )

    def _check_version(self, apt: AptRoot, where: str) -> None:
        names: set[str] = set()
        for index in apt.indexes():
            names |= set(
                re.findall(r"^Package: (\S+)$", apt.text(index).decode(errors="replace"), re.MULTILINE)
            )
        cuda = self.variant.cuda
        wanted = (*cuda.runtime, *cuda.development) if cuda else ()
        missing = [package for package in wanted if package.startswith("cuda-") and package not in names]
        if missing:
            offered = sorted(
                name.removeprefix("cuda-libraries-").replace("-", ".")
                for name in names
                if re.fullmatch(r"cuda-libraries-\d+-\d+", name)
            )
            raise CellblockError(
                f"{where}: {self.source.repository} holds no CUDA {self.source.version} for "
                f"{self.variant.arch.debian}: there is no package {', '.join(missing)}",
                hint=f"versions there: {', '.join(offered) or 'none'}; correct `version` in variants.yaml",
            )
