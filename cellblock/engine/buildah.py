"""The buildah engine: working containers without a daemon, committed as one layer an image.

Only the command line is used: buildah is a Go program without a stable library, and its versions
differ between distributions (1.23 to 1.41 in the supported ones), so only long-lived flags are used.

What a crash leaves behind: a working container named `cellblock-PID-STARTTIME-...`. `sweep`
removes those whose process is gone; a tag is only ever given to a finished image, by the commit.
"""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from cellblock.engine import apt
from cellblock.engine.advice import advice
from cellblock.engine.recipe import (
    Bootstrap,
    BuiltImage,
    CompileIn,
    CopyFrom,
    ImageConfig,
    Install,
    Overlay,
    Recipe,
    Shell,
    Step,
    StepFailed,
    StepReport,
)
from cellblock.errors import CellblockError
from cellblock.process import Finished, Interrupted, ProgramFailed, Programs

# Where a step sees what is handed to it; not part of the image (a mount).
_HANDED_IN = "/run/cellblock"


class BuildahEngine:
    """Builds with buildah's working containers and mmdebstrap; see `cellblock.engine.Engine`."""

    name = "buildah"

    def __init__(self, *, keep_failed: bool = False) -> None:
        self._programs = Programs()
        self._keep_failed = keep_failed
        self._download_locks: dict[Path, threading.Lock] = {}
        self._lock = threading.Lock()
        self._count = 0

    def images(self) -> Mapping[str, BuiltImage]:
        """All images of the storage, by each of their references.

        Raises CellblockError when buildah is missing or its storage cannot be read.
        """
        if shutil.which("buildah") is None:
            raise CellblockError("buildah is not installed", hint="run `python3 build.py doctor`")
        output = self._list_images()
        images: dict[str, BuiltImage] = {}
        for image in _json_list(output):
            for name in image.get("names") or ():
                images[name] = BuiltImage(name, image["id"], _bytes(image["size"]), image["created"])
        return images

    def _list_images(self) -> str:
        # It reads one image after the other, and fails when another process removes one meanwhile.
        for _ in range(5):
            done = self._buildah("images", "--json", check=False)
            if done.status == 0:
                return done.output
            time.sleep(0.2)
        return self._buildah("images", "--json").output

    def tag(self, image: BuiltImage, reference: str) -> BuiltImage:
        """Give `image` the reference `reference` as well."""
        self._buildah("tag", image.id, reference)
        return replace(image, reference=reference)

    def remove(self, reference: str) -> bool:
        """Take the reference away, and the image with its last one; False when it is in use."""
        return self._buildah("rmi", reference, check=False).status == 0

    def stop(self) -> None:
        """End what runs; the builds that it belongs to clean up and raise Interrupted."""
        self._programs.stop()

    def sweep(self) -> None:
        """Remove working containers of Cellblock processes that no longer exist."""
        output = self._buildah("containers", "--json").output
        for container in _json_list(output):
            owner = _owner(container["containername"])
            if owner and not _same_process(*owner):
                self._buildah("rm", container["containername"], check=False)

    def build(self, recipe: Recipe, report: StepReport) -> BuiltImage:
        """Carry out `recipe` in a working container and commit it.

        Raises StepFailed naming the step, or Interrupted; then nothing is tagged.
        """
        with self._container(recipe.parent or "scratch", recipe.image) as container:
            for step in recipe.steps:
                with report.step(step.title):
                    self._carry_out(step, container, recipe, report)
            with report.step("commit"), _naming(recipe, "commit"):
                self._configure(container, recipe.config)
                self._clean(container)
                name, *others = recipe.references
                self._buildah("commit", "--quiet", container, name)
                for other in others:
                    self._buildah("tag", name, other)
        image = self.images().get(name)
        if image is None:
            raise CellblockError(
                f"image {recipe.image}: committed as {name}, but the storage does not list it",
                hint="another process removed it; build again",
            )
        return image

    def mount(self, container: str) -> Path:
        """Root filesystem of a working container on this machine."""
        return Path(self._buildah("mount", container).output.strip())

    # -- steps ---------------------------------------------------------------------------------

    def _carry_out(self, step: Step, container: str, recipe: Recipe, report: StepReport) -> None:
        with _naming(recipe, step.title):
            if isinstance(step, Bootstrap):
                self._bootstrap(step, container, recipe, report)
            elif isinstance(step, Install):
                self._install(step, container, recipe, report)
            elif isinstance(step, Overlay):
                self._overlay(step, container, report)
            elif isinstance(step, CopyFrom):
                for there, here in step.files:
                    self._buildah("copy", "--quiet", "--from", step.reference, container, there, here)
            elif isinstance(step, Shell):
                self._run(container, step.lines, report)
            else:
                self._compile(step, container, recipe, report)

    def _bootstrap(self, step: Bootstrap, container: str, recipe: Recipe, report: StepReport) -> None:
        clock = apt.PhaseClock()

        def line(text: str) -> None:
            clock.line(text)
            report.line(text)

        root = self.mount(container)
        argv = apt.mmdebstrap(step, root)
        self._programs.run(argv, on_line=line, env={"DEBIAN_FRONTEND": "noninteractive"})
        root.chmod(0o755)  # buildah's empty root is 0555
        report.downloaded(clock.downloading_s)

    def _install(self, step: Install, container: str, recipe: Recipe, report: StepReport) -> None:
        volumes = apt.cache_volumes(recipe.package_cache)
        volumes += [f"{folder}:{folder}:ro" for folder in recipe.local_archives]
        started = time.monotonic()
        # apt locks its archive folder: one download at a time, installs run side by side.
        with self._download_lock(recipe.package_cache):
            if not apt.lists_are_fresh(recipe.package_cache):
                self._run(container, apt.update(step), report, volumes)
                apt.lists_were_fetched(recipe.package_cache)
            self._run(container, apt.download(step), report, volumes)
        report.downloaded(time.monotonic() - started)
        self._run(container, apt.install(step), report, volumes)

    def _overlay(self, step: Overlay, container: str, report: StepReport) -> None:
        # Unpacked by the image's own tar inside the image: an absolute symlink in the image
        # (/var/run -> /run) must not lead out of it, and existing folders keep their modes.
        unpack = (
            f"tar -C {_HANDED_IN} -cf - --owner=0 --group=0 --sort=name . | "
            "tar -C / -xf - --keep-directory-symlink --no-overwrite-dir"
        )
        self._run(container, [unpack], report, [f"{step.folder}:{_HANDED_IN}:ro"])

    def _compile(self, step: CompileIn, container: str, recipe: Recipe, report: StepReport) -> None:
        with self._container(step.reference, recipe.image + "-compile") as workshop:
            for folder, there in step.sources:
                self._buildah("copy", "--quiet", workshop, str(folder), there)
            self._run(workshop, step.lines, report)
            self._buildah("copy", "--quiet", container, str(self.mount(workshop)) + step.output, step.output)

    def _run(
        self, container: str, lines: Sequence[str], report: StepReport, volumes: Sequence[str] = ()
    ) -> None:
        mounts = [argument for volume in volumes for argument in ("--volume", volume)]
        # chroot isolation needs no runtime, no cgroup and no network set-up.
        run = ("run", "--isolation", "chroot", *mounts, container, "--")
        self._buildah(*run, "sh", "-euc", "\n".join(lines), report=report)

    def _configure(self, container: str, config: ImageConfig) -> None:
        arguments = ["--entrypoint", json.dumps(list(config.entrypoint)), "--cmd", ""]
        if config.command:
            arguments[-1] = json.dumps(list(config.command))
        for name, value in {"PATH": apt.PATH, **config.env}.items():
            arguments += ["--env", f"{name}={value}"]
        for name, value in config.labels.items():
            arguments += ["--label", f"{name}={value}"]
        if config.stop_signal:
            arguments += ["--stop-signal", config.stop_signal]
        self._buildah("config", *arguments, container)

    def _clean(self, container: str) -> None:
        """Remove what a build leaves that is no part of an image: logs, caches, a machine's identity."""
        root = self.mount(container)
        for pattern in apt.LEFTOVERS:
            # The patterns' folders are real folders in every Debian root, never symlinks.
            for path in root.glob(pattern):
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                else:
                    path.unlink()
        for name in apt.IDENTITIES:
            identity = root / name
            if identity.is_file() and not identity.is_symlink():
                identity.write_bytes(b"")

    # -- containers ----------------------------------------------------------------------------

    @contextmanager
    def _container(self, parent: str, image: str) -> Iterator[str]:
        with self._lock:
            self._count += 1
            name = f"cellblock-{os.getpid()}-{_start_time(os.getpid())}-{image}-{self._count}"
        self._buildah("from", "--pull-never", "--name", name, parent)
        keep = False
        try:
            yield name
        except StepFailed:
            keep = self._keep_failed
            raise
        finally:
            if not keep:
                # Not by self._programs: after `stop` the container must go all the same.
                Programs().run(["buildah", "rm", name], check=False)

    def _buildah(self, *arguments: str, report: StepReport | None = None, check: bool = True) -> Finished:
        return self._programs.run(
            ["buildah", *arguments], on_line=report.line if report else None, check=check
        )

    def _download_lock(self, folder: Path) -> threading.Lock:
        with self._lock:
            return self._download_locks.setdefault(folder, threading.Lock())


@contextmanager
def _naming(recipe: Recipe, title: str) -> Iterator[None]:
    """Turn a failed program into a StepFailed that names image and step."""
    try:
        yield
    except ProgramFailed as error:
        raise StepFailed(
            recipe, title, error.finished, hint=advice(error.finished.tail, recipe.package_cache)
        ) from error
    except Interrupted as error:
        raise Interrupted(f"image {recipe.image}: stopped in step '{title}'") from error


def _owner(container: str) -> tuple[int, int] | None:
    """Process id and start time in the name of one of our containers."""
    parts = container.split("-")
    if len(parts) < 4 or parts[0] != "cellblock" or not (parts[1].isdigit() and parts[2].isdigit()):
        return None
    return int(parts[1]), int(parts[2])


def _start_time(pid: int) -> int:
    """Start time of a process in clock ticks since boot (proc(5), stat, field 22)."""
    text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    return int(text.rsplit(")", 1)[1].split()[19])


def _same_process(pid: int, start_time: int) -> bool:
    try:
        return _start_time(pid) == start_time
    except OSError:
        return False


def _json_list(text: str) -> list[dict[str, Any]]:
    """What buildah's --json printed; it prints `null` for none."""
    return json.loads(text or "null") or []


def _bytes(text: str) -> int:
    """The size that `buildah images` prints ("118 MB", decimal units), in bytes."""
    number, unit = text.split()
    scale = {"B": 1, "bytes": 1, "KB": 10**3, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
    return int(float(number) * scale.get(unit, 1))
