# SPDX-License-Identifier: Apache-2.0
"""Makes one layer: bootstraps, installs packages, copies files, or compiles, and stores the result.

scheduler.py calls it for each layer that does not exist. Nothing half made is ever seen: a layer's tree and
its record are renamed into place when its blob is stored. Trees stay, because later layers are made on them;
one that was removed is unpacked from its blob when it is needed again.
"""

from __future__ import annotations

import errno
import itertools
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from cellblock.bind_mount import BindMount
from cellblock.build import install_commands
from cellblock.build.copying import copy_out, copy_sources
from cellblock.build.kept_objects import KeptObjects
from cellblock.build.layer_graph import Node
from cellblock.build.steps import add_users, definition_steps
from cellblock.build.tidy import inside, is_whiteout, mark_automatic, tidy
from cellblock.build.unpack_layer import unpack_layer
from cellblock.build.unpack_packages import TAR, Opened, feed, frames, in_order, plan_unpacking
from cellblock.build.working_root import FailedInRoot, WorkingRoot
from cellblock.engine import manuals
from cellblock.engine.advice import advice
from cellblock.engine.recipe import (
    CompileIn,
    CopyFrom,
    Overlay,
    Shell,
    StepReport,
    beginning,
)
from cellblock.errors import CellblockError, DefinitionError
from cellblock.files import durable
from cellblock.lock.model import LockedPackage
from cellblock.oci.layer import Compression, store_layer
from cellblock.oci.layout import Layout
from cellblock.process import Interrupted, ProgramFailed, Programs
from cellblock.store.failed_roots import keep_root
from cellblock.store.layer_records import find_layer
from cellblock.store.record import LayerRecord
from cellblock.store.work_folders import WorkFolders
from cellblock.variants import Variant

# Where a root sees what is handed to it; a mount, so no part of a layer.
_HANDED_IN = "/run/cellblock"


@dataclass(frozen=True)
class Settings:
    """What all layers of a build have in common. `epoch` is SOURCE_DATE_EPOCH in seconds.

    `provide` makes a new folder the flat archive of given packages, which it fetches if need be, and
    returns them taken apart;
    `sources` are the sources.list(5) lines that people find in an image.
    """

    epoch: int
    compression: Compression
    provide: Callable[[Sequence[LockedPackage], Path], Sequence[Opened]]
    sources: tuple[str, ...]
    keep_failed: bool = False


class LayerMaker:
    """Makes layers in `folder` (trees, records, working roots), and their blobs in `layout`."""

    def __init__(
        self, folder: Path, layout: Layout, variant: Variant, settings: Settings, programs: Programs
    ) -> None:
        self._cache = folder
        self._trees = folder / "trees"
        self._records = folder / "layers"
        self._work = WorkFolders(folder / "work")
        self._layout = layout
        self._variant = variant
        self._settings = settings
        self._programs = programs

    def sweep(self) -> None:
        """Remove what builds that were killed left behind."""
        self._work.sweep()

    def find(self, node: Node) -> LayerRecord | None:
        """The record of a layer that is there already; notes that it was used."""
        record = find_layer(self._records, self._layout, node.id, node.title, node.kind)
        if record:
            with suppress(OSError):
                os.utime(self._records / f"{node.id}.json")
        return record

    def keep(self, node: Node, record: LayerRecord) -> None:
        """Remember a layer whose blob is stored."""
        self._records.mkdir(parents=True, exist_ok=True)
        durable.replace(self._records / f"{node.id}.json", json.dumps(asdict(record)))

    def tree(self, node: Node) -> Path:
        """The tree of a layer that `find` knows."""
        path = self._trees / node.id
        if not path.is_dir():
            record = self.find(node)
            if record is None:
                raise CellblockError(
                    f"the layer '{node.title}' was removed while this build ran", hint="build again"
                )
            with self._work.new() as folder:
                unpack_layer(self._layout, record, folder / "tree")
                self._place(folder / "tree", path)
        return path

    def make(
        self, node: Node, report: StepReport, tree_is_there: Callable[[], None] = lambda: None
    ) -> LayerRecord:
        """Make the layer; the trees of those that it waits for must be there.

        `tree_is_there` is called when others can be made on this one: before its blob is written. Raises
        ProgramFailed when a program fails, Interrupted after a stop; nothing is stored then.
        """
        started = time.monotonic()
        laid: Sequence[Opened] = ()
        with self._work.new() as folder:
            below = [self.tree(each) for each in node.parent.chain()] if node.parent else []
            _refuse_baked(node, below)
            root = WorkingRoot(
                folder, below, self._programs, {"SOURCE_DATE_EPOCH": str(self._settings.epoch)}
            )
            try:
                if node.packages:
                    laid = self._packages(node, root, report)
                elif node.manuals:
                    self._manuals(node, root, report)
                else:
                    self._definition(node, root, report)
            except CellblockError as error:
                if isinstance(error, ProgramFailed):
                    # While what it wrote is still there: afterwards a full disk has room again.
                    error.hint = advice(error.finished.tail, folder)
                if self._settings.keep_failed and not isinstance(error, Interrupted):
                    failed = error.root if isinstance(error, FailedInRoot) else root
                    enter = keep_root(self._cache, f"{node.images[0]}-{node.id[:8]}", folder, failed)
                    look = f"look into the root with: sh {enter}"
                    error.hint = f"{error.hint}; {look}" if error.hint else look
                raise
            tidy(root.upper, node.per_machine)
            tree = self._place(root.upper, self._trees / node.id)
            tree_is_there()
            with report.step("write the layer"):
                epoch, compression = self._settings.epoch, self._settings.compression
                whole = frames(laid, tree, root.marked(), epoch) if laid and compression.framed else []
                layer = store_layer(tree, below, self._layout, epoch, compression, whole)
        record = LayerRecord(
            kind=node.kind,
            title=node.title,
            key=node.key.digest,
            digest=layer.descriptor.digest,
            diff_id=layer.diff_id,
            size=layer.descriptor.size,
            uncompressed=layer.uncompressed,
            packages=tuple((package.name, package.version) for package in node.packages),
            seconds=round(time.monotonic() - started, 3),
        )
        self.keep(node, record)
        return record

    def _packages(self, node: Node, root: WorkingRoot, report: StepReport) -> Sequence[Opened]:
        """Install the packages; returns those whose files were laid down as their debs have them."""
        repository = root.folder / "repository"
        with report.step("packages at hand"):
            provided = {each.package.name: each for each in self._settings.provide(node.packages, repository)}
            packages = {package.name: package for package in node.packages}
            opened = [provided[name] for name in in_order(sorted(packages), packages)]
        if node.parent is None:
            with report.step("bootstrap"):
                laid = self._bootstrap(node, root, opened, report)
        if node.image and node.image.image.fields.users:
            with report.step("make users"):
                root.run(add_users(node.image.image.fields.users), on_line=report.line)
        if node.parent is None:
            return laid
        with report.step("install packages"):
            unpacking = plan_unpacking(opened, root.trees)
            root.run(
                install_commands.install(unpacking, _HANDED_IN),
                binds=[BindMount(repository, _HANDED_IN)],
                on_line=report.line,
                feed=lambda to: feed(unpacking.laid, unpacking, to),
            )
            above = (package for each in node.chain()[1:] for package in each.packages)
            automatic = [package.name for package in above if package.name not in node.manual]
            mark_automatic(root.upper, self._variant.arch.debian, automatic)
            return unpacking.laid

    def _manuals(self, node: Node, root: WorkingRoot, report: StepReport) -> None:
        """Add the manual pages of packages that were installed without."""
        repository = root.folder / "repository"
        with report.step("packages at hand"):
            listings = (path for tree in root.trees for path in (tree / "var/lib/dpkg/info").glob("*.list"))
            named = {
                path.stem.partition(":")[0]
                for path in listings
                if manuals.has_pages(path.read_text("utf-8", "replace"))
            }
            self._settings.provide([each for each in node.manuals if each.name in named], repository)
        with report.step("unpack manual pages"):
            root.run(
                manuals.unpack(_HANDED_IN), binds=[BindMount(repository, _HANDED_IN)], on_line=report.line
            )

    def _bootstrap(
        self, node: Node, root: WorkingRoot, opened: Sequence[Opened], report: StepReport
    ) -> Sequence[Opened]:
        sources = "".join(f"{line}\n" for line in self._settings.sources)
        merged = install_commands.merged_folders(opened)
        laid: Sequence[Opened] = ()
        if merged is None:
            self._mmdebstrap(node, root, sources, report)
        else:
            try:
                laid = self._lay_base(root, opened, merged, report)
            except ProgramFailed as error:
                # A distribution whose essential packages need more care than those that are known here.
                report.line(f"laying down the first layer did not do: {error}; mmdebstrap goes on")
                shutil.rmtree(root.upper)
                root.upper.mkdir()
                self._mmdebstrap(node, root, sources, report)
            else:
                install_commands.settle(root.upper, sources)
        root.upper.chmod(0o755)
        return laid

    def _lay_base(
        self, root: WorkingRoot, opened: Sequence[Opened], merged: Sequence[str], report: StepReport
    ) -> Sequence[Opened]:
        """Lay down all packages, scripts or not: nothing can run before that."""
        for name in merged:
            (root.upper / "usr" / name).mkdir(parents=True, exist_ok=True)
            (root.upper / name).symlink_to(f"usr/{name}")
        unpacking = plan_unpacking(opened, [])
        # base-files brings links that others' files lead through.
        first = sorted(opened, key=lambda each: each.package.name != "base-files")
        self._programs.run(
            [*TAR, f"--directory={root.upper}"],
            on_line=report.line,
            feed=lambda to: feed(first, unpacking, to),
        )
        time.sleep(install_commands.PAUSE_S)
        root.mark()
        time.sleep(install_commands.PAUSE_S)
        root.run(
            install_commands.configure_base(unpacking, _HANDED_IN),
            binds=[BindMount(root.folder / "repository", _HANDED_IN)],
            on_line=report.line,
        )
        return unpacking.laid

    def _mmdebstrap(self, node: Node, root: WorkingRoot, sources: str, report: StepReport) -> None:
        listed = root.folder / "sources.list"
        listed.write_text(sources, encoding="utf-8")
        listed.chmod(0o644)
        names = [package.name for package in node.packages]
        argv = install_commands.mmdebstrap(
            self._variant, names, root.folder / "repository", listed, root.folder / "root"
        )
        environment = {
            "DEBIAN_FRONTEND": "noninteractive",
            "SOURCE_DATE_EPOCH": str(self._settings.epoch),
            "TMPDIR": str(root.folder),
        }
        self._programs.run(root.around(argv), on_line=report.line, env=environment)

    def _definition(self, node: Node, root: WorkingRoot, report: StepReport) -> None:
        assert node.image
        staging = root.folder / "files"
        staging.mkdir()
        numbers = itertools.count()
        needs = node.needs or {}
        for step in definition_steps(node.image, staging):
            with report.step(step.title):
                if isinstance(step, Overlay):
                    self._lay_over(root, step.folder, report)
                elif isinstance(step, CopyFrom):
                    number = next(numbers)
                    copied = root.folder / f"copied-{number}"
                    trees = [self.tree(each) for each in needs[step.image].chain()]
                    source = WorkingRoot(root.folder / f"source-{number}", trees, self._programs)
                    copy_out(source, step, copied, self._programs)
                    self._lay_over(root, copied, report)
                elif isinstance(step, CompileIn):
                    self._compile(step, needs[step.image], root, report)
                elif isinstance(step, Shell):
                    resolver = Path("/etc/resolv.conf")
                    binds = [BindMount(resolver, str(resolver))] if resolver.is_file() else []
                    with _locating(step.lines, step.at):
                        root.run(step.lines, binds=binds, on_line=report.line, numbered=True)

    def _lay_over(self, root: WorkingRoot, folder: Path, report: StepReport) -> None:
        # Unpacked by the image's own tar inside the image: an absolute symlink in the image
        # (/var/run -> /run) must not lead out of it, and existing folders keep their modes.
        unpack = (
            f"tar -C {_HANDED_IN} -cf - --owner=0 --group=0 --sort=name . | "
            "tar -C / -xf - --keep-directory-symlink --no-overwrite-dir"
        )
        root.run([unpack], binds=[BindMount(folder, _HANDED_IN)], on_line=report.line)

    def _compile(self, step: CompileIn, toolchain: Node, root: WorkingRoot, report: StepReport) -> None:
        trees = [self.tree(each) for each in toolchain.chain()]
        workshop = WorkingRoot(root.folder / "workshop", trees, self._programs, root.env)
        for source, there in step.sources:
            copy_sources(source, workshop.upper / there.lstrip("/"), step.build_at)
        objects = KeptObjects(self._cache / "objects", step, workshop.upper, toolchain.chain())
        objects.put_back()
        with _locating(step.lines, step.at):
            workshop.run(step.lines, on_line=report.line, numbered=True)
        objects.keep()
        made = workshop.upper / step.output.lstrip("/")
        if not made.is_dir() or made.is_symlink():
            raise DefinitionError(
                f"{step.build_at}.output: compiling made no folder {step.output}",
                hint="correct `run` or `output` of `build`",
            )
        output = root.upper / step.output.lstrip("/")
        output.parent.mkdir(parents=True, exist_ok=True)
        made.rename(output)

    # -- folders -------------------------------------------------------------------------------

    def _place(self, tree: Path, place: Path) -> Path:
        place.parent.mkdir(parents=True, exist_ok=True)
        try:
            tree.rename(place)
        except OSError as error:
            # The record was lost and the tree was not: its bytes follow from its name.
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
        return place


@contextmanager
def _locating(lines: Sequence[str], at: Sequence[str]) -> Iterator[None]:
    """Have a failure of `lines`, which stand at `at` in a definition, say which one it was."""
    try:
        yield
    except FailedInRoot as error:
        number = error.line if len(lines) > 1 else 0
        # Users have one place for all the lines that make them, which nobody wrote.
        if number is not None and len(at) == len(lines):
            error.where = f"{at[number]}: {beginning(lines[number])}"
        elif at:
            error.where = at[0]
        raise


def _refuse_baked(node: Node, below: Sequence[Path]) -> None:
    """Raise DefinitionError when a layer below holds what each machine must make for itself."""
    for pattern in node.per_machine:
        for tree in below:
            for path in tree.glob(pattern.lstrip("/")):
                if inside(path, tree) and not path.is_dir() and not is_whiteout(path):
                    raise DefinitionError(
                        f"{node.title}: {pattern} is to be in no layer, and one below holds "
                        f"/{path.relative_to(tree)}",
                        hint="declare it in `per_machine` of the image whose package makes it",
                    )
