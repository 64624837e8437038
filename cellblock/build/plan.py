"""From a declared image and a variant to a recipe and its cache key."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import cellblock
from cellblock import paths
from cellblock.build.mirrors import Archive
from cellblock.definition import Image, User
from cellblock.engine.recipe import (
    Bootstrap,
    CompileIn,
    CopyFrom,
    ImageConfig,
    Install,
    Overlay,
    Recipe,
    Shell,
    Step,
)
from cellblock.errors import DefinitionError
from cellblock.key import Key, digest_of, digest_of_tree, digests_of_files
from cellblock.template import Renderer
from cellblock.variants import Variant
from cellblock.yaml_source import Location

LABEL = "org.cellblock"

# The code whose change can change what an image holds.
_CODE = ("engine", "build", "oci", "packages", "debian")


# Earlier builds of an image that are kept beside the newest: going back and forth between two states
# of a tree (branches, say) builds nothing, and a disk does not fill up with the others.
KEPT_BUILDS = 3


def reference(image: str, variant: Variant) -> str:
    """The name under which an image of a variant is tagged."""
    return f"localhost/cellblock/{image}:{variant.name}"


def key_prefix(image: str, variant: Variant) -> str:
    """What the names of all builds of an image begin with."""
    return f"{reference(image, variant)}.key-"


def key_reference(image: str, variant: Variant, key: Key) -> str:
    """The name that says which inputs an image was made of: finding it means nothing to do."""
    return key_prefix(image, variant) + key.short


@dataclass(frozen=True)
class PlannedImage:
    """An image, its key, and the rendered strings that its recipe is made of.

    `inputs_of_files` are the digests, by name, of what is laid over the packages and run there; none when
    the image is packages only. `code` is the digest of the code that builds.
    """

    image: Image
    variant: Variant
    key: Key
    packages: tuple[str, ...]
    reference: str
    key_reference: str
    code: str
    inputs_of_files: Mapping[str, str]


class Planner:
    """Plans the images of one variant. Images must be planned after those they need."""

    def __init__(self, variant: Variant, archive: Archive, slurm_key: str | None = None) -> None:
        """`slurm_key` is the key of a Slurm compiled from source."""
        self.variant = variant
        self._slurm_key = slurm_key
        self._archive = archive
        self._renderer = Renderer(variant)
        self._planned: dict[str, PlannedImage] = {}
        package = Path(cellblock.__file__).parent
        self._code = digest_of([digest_of_tree(package / folder, (".py", ".sh")) for folder in _CODE])

    def plan(self, image: Image) -> PlannedImage:
        """Render and key `image`. Raises DefinitionError when a template is wrong."""
        fields = image.fields
        rendered = {
            # One template can stand for a list of packages.
            "packages": tuple(" ".join(self._strings(image, fields.packages, "packages")).split()),
            "run": self._strings(image, fields.run, "run"),
            "entrypoint": self._strings(image, fields.entrypoint, "entrypoint"),
            "command": self._strings(image, fields.command, "command"),
            "env": {name: self._string(image, text, ("env", name)) for name, text in fields.env.items()},
            "artifacts": [list(pair) for copy in self._copies(image) for pair in copy.files],
            "manuals": fields.manuals,
            "users": [user.model_dump() for user in fields.users],
            "build": fields.build.model_dump() if fields.build else None,
            "stop_signal": fields.stop_signal,
            "summary": fields.summary,
        }
        inputs = {
            "the code that builds": self._code,
            "variant": self._variant_digest(),
            f"images/{image.name}/image.yaml": digest_of(rendered),
            f"images/{image.name}/files": digest_of_tree(image.files),
        }
        if fields.parent is None and fields.build is None:
            inputs["mirrors"] = digest_of(self._archive.lines)
        for folder in fields.build.sources if fields.build else ():
            inputs[folder] = digest_of_tree(paths.PROJECT / folder)
        for need in image.needs():
            inputs[f"image {need}"] = self._planned[need].key.digest
        key = Key(inputs)
        planned = PlannedImage(
            image,
            self.variant,
            key,
            rendered["packages"],  # type: ignore[arg-type]
            reference(image.name, self.variant),
            key_reference(image.name, self.variant, key),
            self._code,
            self._inputs_of_files(image, rendered),
        )
        self._planned[image.name] = planned
        return planned

    def _inputs_of_files(self, image: Image, rendered: Mapping[str, object]) -> dict[str, str]:
        folder = f"images/{image.name}/files"
        inputs = digests_of_files(image.files, folder, ignored=())
        for name in [name for name in inputs if name.endswith(".j2")]:
            # What it renders to, and not what it could: the same text in two variants is one layer.
            path = image.files / name.removeprefix(f"{folder}/")
            if path.is_file() and not path.is_symlink():
                kind = inputs[name].split(" ")[0]
                inputs[name] = f"{kind} rendered {digest_of(self._renderer.file(path))}"
        for folder in image.fields.build.sources if image.fields.build else ():
            inputs.update(digests_of_files(paths.PROJECT / folder, folder))
        # A root's users are made where it is bootstrapped.
        for key in ("run", "artifacts", "build", *(("users",) if image.fields.parent else ())):
            if rendered[key]:
                inputs[f"images/{image.name}/image.yaml: {key}"] = digest_of(rendered[key])
        return inputs

    def _variant_digest(self) -> str:
        cuda = self.variant.cuda.inputs() if self.variant.cuda else None
        inputs = [self.variant.distribution.model_dump(), cuda, self.variant.arch.debian]
        # Not what it was compiled from: its key says all, and names no folder of this machine.
        return digest_of([*inputs, *([self._slurm_key] if self._slurm_key else [])])

    def key_reference(self, name: str) -> str:
        """By which recipes name the planned image `name`."""
        return self._planned[name].key_reference

    def recipe(self, planned: PlannedImage, staging: Path, reproduce: str) -> Recipe:
        """The recipe of a planned image; rendered files are written below the empty folder `staging`."""
        image, fields = planned.image, planned.image.fields
        lists = [*self._archive.lines, *self._archive.build_only]
        return Recipe(
            image=image.name,
            references=(planned.reference, planned.key_reference),
            # By key: the plain name may still be another branch's build.
            parent=self._planned[fields.parent].key_reference if fields.parent else None,
            steps=tuple(self._steps(planned, staging)),
            config=self.config(image),
            # Lists and packages of one mirror say nothing about another's.
            package_cache=paths.cache() / "apt" / f"{self.variant.name}-{digest_of(lists)[:8]}",
            reproduce=reproduce,
            local_archives=self._archive.local,
            sources=self._archive.lines,
            per_machine=self._per_machine(image),
        )

    def config(self, image: Image) -> ImageConfig:
        """What the image says of itself and what it runs."""
        fields = image.fields
        return ImageConfig(
            labels={
                f"{LABEL}.image": image.name,
                f"{LABEL}.variant": self.variant.name,
                f"{LABEL}.slurm": self.variant.slurm.release,
                "org.opencontainers.image.title": f"cellblock {image.name}",
                "org.opencontainers.image.description": fields.summary,
            },
            env={name: self._string(image, text, ("env", name)) for name, text in fields.env.items()},
            entrypoint=self._strings(image, fields.entrypoint, "entrypoint"),
            command=self._strings(image, fields.command, "command"),
            stop_signal=fields.stop_signal,
        )

    def _per_machine(self, image: Image) -> tuple[str, ...]:
        """Of the image and those it stands on: a package of either may make them anew."""
        fields = image.fields
        inherited = self._per_machine(self._planned[fields.parent].image) if fields.parent else ()
        return tuple(dict.fromkeys((*inherited, *fields.per_machine)))

    def _steps(self, planned: PlannedImage, staging: Path) -> list[Step]:
        image, fields = planned.image, planned.image.fields
        distribution = self.variant.distribution
        options = () if distribution.check_valid_until else ("Acquire::Check-Valid-Until=false",)
        users = tuple(add_users(fields.users))
        steps: list[Step] = []
        if fields.build:
            build = fields.build
            sources = tuple((paths.PROJECT / folder, there) for folder, there in build.sources.items())
            lines, at = self._lines(image, build.run, "build", "run")
            toolchain = self._planned[build.toolchain].key_reference
            whole = self._at(image, ("build",))
            steps.append(CompileIn(toolchain, sources, lines, build.output, at, whole))
        elif fields.parent is None:
            steps.append(
                Bootstrap(
                    distribution.codename,
                    self.variant.arch.debian,
                    distribution.components(self.variant.cuda),
                    self._archive.lines,
                    planned.packages,
                    options,
                )
            )
        if users:
            # Before packages: a package's script that would make the user finds it.
            steps.append(Shell(users, "make users"))
        if fields.parent and planned.packages:
            archive = self._archive
            steps.append(
                Install(planned.packages, options, archive.build_only, archive.preferences, fields.manuals)
            )
        if image.files.is_dir():
            self._render_files(image.files, staging)
            steps.append(Overlay(staging))
        steps += self._copies(image)
        if fields.run:
            lines, at = self._lines(image, fields.run, "run")
            steps.append(Shell(lines, at=at))
        return steps

    def _copies(self, image: Image) -> list[CopyFrom]:
        copies = []
        one = isinstance(image.source.data.get("artifacts"), dict)
        for index, artifacts in enumerate(image.fields.artifacts):
            files, places = [], []
            for there, here in artifacts.files.items():
                at: Location = ("artifacts", *(() if one else (index,)), "files", there)
                files.append((self._string(image, there, at), self._string(image, here, at)))
                places.append(self._at(image, at))
            reference = self._planned[artifacts.image].key_reference
            copies.append(CopyFrom(reference, tuple(files), artifacts.image, tuple(places)))
        return copies

    def _lines(
        self, image: Image, templates: list[str], *key: str
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """What `_strings` gives, and where each stands: FILE:LINE: KEY."""
        texts = [self._string(image, text, (*key, index)) for index, text in enumerate(templates)]
        kept = [(text, self._at(image, (*key, i))) for i, text in enumerate(texts) if text.strip()]
        return tuple(text for text, _ in kept), tuple(at for _, at in kept)

    @staticmethod
    def _at(image: Image, at: Location) -> str:
        """FILE:LINE: KEY; a list's numbers and the files' paths say nothing that the line does not."""
        key = ".".join(str(part) for part in at if isinstance(part, str) and "/" not in part)
        return f"{image.source.path}:{image.source.line(at)}: {key}"

    def _strings(self, image: Image, templates: list[str], *at: str) -> tuple[str, ...]:
        """Rendered, without those that render to nothing."""
        texts = (self._string(image, text, (*at, index)) for index, text in enumerate(templates))
        return tuple(text for text in texts if text.strip())

    def _string(self, image: Image, template: str, at: Location) -> str:
        key = ".".join(str(part) for part in at)
        return self._renderer.text(template, f"{image.source.path}:{image.source.line(at)}: {key}")

    def _render_files(self, files: Path, staging: Path) -> None:
        """Copy `files` to `staging`: templates rendered, modes 0644 or 0755 whatever the umask was."""
        for path in sorted(files.rglob("*")):
            target = staging / path.relative_to(files)
            if path.is_symlink():
                target.symlink_to(path.readlink())
            elif path.is_dir():
                target.mkdir()
                target.chmod(0o755)
            elif path.is_file():
                mode = 0o755 if path.stat().st_mode & 0o111 else 0o644
                if path.suffix == ".j2":
                    target = target.with_suffix("")
                    target.write_text(self._renderer.file(path), encoding="utf-8")
                else:
                    target.write_bytes(path.read_bytes())
                target.chmod(mode)
            else:
                raise DefinitionError(
                    f"{path}: only files, folders and symbolic links can be laid over a root",
                    hint="make other kinds of file in `run`",
                )
        staging.chmod(0o755)


def add_users(users: Iterable[User]) -> list[str]:
    """Shell lines that add users and their groups, as passwd(5), group(5) and shadow(5) have them.

    Not by useradd(8): its day of last change and its backup files would differ at each build.
    """
    return [line for user in users for line in (*_refuse_taken(user), *_add_user(user.name, user))]


def _refuse_taken(user: User) -> list[str]:
    """Lines that fail when a package's user has the uid or gid, or the name with others."""
    lines = []
    for file, kind, number in (("passwd", "uid", user.uid), ("group", "gid", user.gid)):
        is_own, has_id = f"^{user.name}:", f"^[^:]*:[^:]*:{number}:"
        taken = f"user {user.name}: {kind} {number} is that of the line of /etc/{file} above: declare another"
        other = f"user {user.name}: /etc/{file} has the name with another {kind}, see above: declare that one"
        lines += [
            f"if grep -v '{is_own}' /etc/{file} | grep '{has_id}' >&2; then echo '{taken}' >&2; exit 1; fi",
            f"if grep '{is_own}' /etc/{file} | grep -v '{has_id}' >&2; then echo '{other}' >&2; exit 1; fi",
        ]
    return lines


def _add_user(name: str, user: User) -> list[str]:
    lines = {
        "passwd": f"{name}:x:{user.uid}:{user.gid}::{user.home}:{user.shell}",
        "group": f"{name}:x:{user.gid}:",
        "shadow": f"{name}:!*:::::::",
        "gshadow": f"{name}:!::",
    }
    return [
        f"grep -q '^{name}:' /etc/{file} || printf '%s\\n' {shlex.quote(line)} >> /etc/{file}"
        for file, line in lines.items()
    ]


def plan_all(planner: Planner, images: list[Image]) -> Mapping[str, PlannedImage]:
    """Plan `images`, which stand in build order."""
    return {image.name: planner.plan(image) for image in images}
