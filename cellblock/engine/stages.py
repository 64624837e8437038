# SPDX-License-Identifier: Apache-2.0
"""Writes recipes as stages of a Containerfile that any builder accepts: buildah, docker build, BuildKit.

It uses only what all of them know: no heredocs, no mounts, no `COPY --chmod`. A RUN also removes what it
leaves behind, so that no layer carries it.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cellblock.engine import apt, manuals, shell_text
from cellblock.engine.recipe import (
    Bootstrap,
    CompileIn,
    CopyFrom,
    ImageConfig,
    Install,
    Overlay,
    Recipe,
    Shell,
)
from cellblock.errors import CellblockError

NAME = "Containerfile"

SOURCES_ARGUMENT = "APT_SOURCES"
"""Build argument: lines of sources.list(5) to install from instead of the image's own."""


@dataclass(frozen=True)
class Instruction:
    """One instruction: `text` begins with its keyword; `title` says what it is for."""

    text: str
    title: str
    comment: str = ""
    at: tuple[str, ...] = ()
    """Where definitions ask for what it does, FILE:LINE: KEY."""


@dataclass(frozen=True)
class Stage:
    """One stage, and what it takes from the build context.

    `files`: (path in the context, file or folder of this machine). `roots`: (path in the context, the
    command that makes the tar there, for a shell that stands in the context).
    """

    name: str
    parent: str
    summary: str
    instructions: tuple[Instruction, ...]
    files: tuple[tuple[str, Path], ...] = ()
    roots: tuple[tuple[str, list[str]], ...] = ()

    def all_instructions(self) -> tuple[Instruction, ...]:
        """The stage's instructions, FROM included."""
        return (Instruction(f"FROM {self.parent} AS {self.name}", "begin"), *self.instructions)

    def text(self) -> str:
        """The stage as it stands in a Containerfile."""
        lines = [f"# {'-' * 100}", f"# {self.name}: {self.summary}"]
        for instruction in self.all_instructions():
            if instruction.comment:
                lines += ["", *(f"# {line}".rstrip() for line in instruction.comment.splitlines())]
            lines.append(instruction.text)
        return "\n".join(lines) + "\n"


def stages_of(recipe: Recipe, name_of: Callable[[str], str], *, inherits_command: bool) -> list[Stage]:
    """The stages that make `recipe`'s image, the last of them being the image.

    `name_of` says what FROM and `COPY --from` call another image; `inherits_command` whether
    the parent has an entrypoint or a command. Raises CellblockError for what no Containerfile can say.
    """
    writer = _Writer(recipe.image, recipe.per_machine)
    before: list[Stage] = []
    for step in recipe.steps:
        if isinstance(step, Bootstrap):
            writer.bootstrap(step)
        elif isinstance(step, Install):
            writer.install(step)
        elif isinstance(step, Overlay):
            writer.overlay(step)
        elif isinstance(step, CopyFrom):
            for number, (there, here) in enumerate(step.files):
                origin, at = name_of(step.image), step.at[number : number + 1]
                writer.copy([there], here, step.title, "Made in another stage.", origin, at)
        elif isinstance(step, Shell):
            comment = step.title.capitalize() if step.title != Shell.title else ""
            writer.run(shell_text.statements(step.lines), step.title, comment and f"{comment}.", step.at)
        else:
            before.append(_compile(step, recipe, name_of(step.image)))
            writer.copy([step.output], step.output, step.title, "All that was compiled.", before[-1].name)
    writer.configure(recipe.config, inherits_command=inherits_command)
    parent = name_of(recipe.parent) if recipe.parent else "scratch"
    return [*before, writer.stage(recipe.image, parent, _summary(recipe))]


def root_tar(step: Bootstrap, target: Path, per_machine: Sequence[str] = ()) -> list[str]:
    """The command that makes the tar of a base: what the other engine bootstraps, cleaned."""
    command = apt.mmdebstrap(step, target, form="tar")
    script = shell_text.quoted("; ".join(line.replace(" \\\n     ", "") for line in cleaning(per_machine)))
    hooks = [f'--customize-hook=chroot "$1" sh -euc {script}']
    archives = [match[1] for source in step.sources if (match := re.search(r"\sfile:/+(\S+)", source))]
    if archives:
        # Mounted there meanwhile by a hook of mmdebstrap's, which leaves the folders behind.
        words = " ".join(map(shell_text.quoted, archives))
        hooks.append(
            f'--customize-hook=cd "$1"; for d in {words}; do '
            'while [ "$d" != . ] && ! grep -qx "/$d" var/lib/dpkg/info/*.list && rmdir "$d"; do '
            'd=$(dirname "$d"); done; done'
        )
    at = command.index(step.suite)
    return [*command[:at], *hooks, *command[at:]]


def cleaning(per_machine: Sequence[str] = ()) -> list[str]:
    """Shell statements that remove what a build leaves that is no part of an image.

    `per_machine` are patterns of further files that must be in no layer.
    """
    patterns = list(per_machine)
    for pattern in apt.LEFTOVERS:
        patterns.append(f"/{pattern}")
        if pattern.endswith("/*"):
            patterns.append(f"/{pattern[:-1]}.[!.]*")
    identities = " ".join(f"/{name}" for name in apt.IDENTITIES)
    return [
        shell_text.wrapped(f"rm -rf {' '.join(patterns)}"),
        # Only one that is there and says something: a file that is touched stands in the layer.
        f'for id in {identities}; do \\\n      if [ -s "$id" ] && [ ! -L "$id" ]; then : > "$id"; fi; done',
    ]


@dataclass
class _Pending:
    """Parts of the RUN that is being collected: fewer layers, and each is cleaned once."""

    items: list[str] = field(default_factory=list)
    titles: list[str] = field(default_factory=list)
    comments: list[str] = field(default_factory=list)
    at: list[str] = field(default_factory=list)


class _Writer:
    """Collects the instructions of one stage."""

    def __init__(self, image: str, per_machine: Sequence[str] = ()) -> None:
        self._image = image
        self._per_machine = per_machine
        self._instructions: list[Instruction] = []
        self._files: list[tuple[str, Path]] = []
        self._roots: list[tuple[str, list[str]]] = []
        self._pending = _Pending()

    def stage(self, name: str, parent: str, summary: str) -> Stage:
        self._flush()
        return Stage(name, parent, summary, tuple(self._instructions), tuple(self._files), tuple(self._roots))

    def add(self, text: str, title: str, comment: str = "", at: Sequence[str] = ()) -> None:
        self._flush()
        self._instructions.append(Instruction(text, title, comment, tuple(at)))

    def run(self, items: Sequence[str], title: str, comment: str = "", at: Sequence[str] = ()) -> None:
        self._pending.items += items
        self._pending.at += at
        if title not in self._pending.titles:
            self._pending.titles.append(title)
        if comment:
            self._pending.comments.append(comment)

    def bootstrap(self, step: Bootstrap) -> None:
        name = f"{self._image}/root.tar"
        command = root_tar(step, Path(name), self._per_machine)
        self._roots.append((name, command))
        self.add(
            f"ADD {name} /",
            step.title,
            f"The tar is made by:\n{command[0]}{shell_text.one_a_line(command[1:])}",
        )

    def install(self, step: Install) -> None:
        # Before what is collected already: between two RUNs it would keep them apart.
        argument = f"ARG {SOURCES_ARGUMENT}"
        if all(instruction.text != argument for instruction in self._instructions):
            self._instructions.append(Instruction(argument, step.title))
        comment = "Packages, without recommended ones and documentation."
        self.run(_install(step), step.title, comment, step.at)

    def overlay(self, step: Overlay) -> None:
        """Files go to their folders one by one: copying a folder would change the modes of those there."""
        groups, folders, links = _tree(step.folder)
        targets = [f"/{name}" for names in groups.values() for name in names]
        items = []
        if targets:
            # Builders write through a link that stands where a file is to come; it is to be replaced.
            words = " ".join(shell_text.quoted(target) for target in targets)
            loop = f'for file in {words}; do if [ -L "$file" ]; then rm "$file"; fi; done'
            items.append(shell_text.wrapped(loop) if "'" not in words else loop)
        items += [f"mkdir -p {shell_text.quoted('/' + name)}" for name in folders]
        for name, leads_to in links.items():
            link = shell_text.quoted("/" + name)
            items.append(f"mkdir -p {shell_text.quoted('/' + str(Path(name).parent))}")
            items.append(f"ln -sfT {shell_text.quoted(leads_to)} {link}")
        if items:
            self.run(items, step.title)
        for parent, names in groups.items():
            here = "/" if parent == "." else f"/{parent}/"
            context = {f"{self._image}/files/{name}": step.folder / name for name in names}
            self._files += context.items()
            self.copy(list(context), here, step.title, "Files that are laid over the root.")

    def copy(
        self,
        sources: Sequence[str],
        target: str,
        title: str,
        comment: str = "",
        origin: str = "",
        at: Sequence[str] = (),
    ) -> None:
        words = [*sources, target]
        for word in words:
            if re.search(r"[*?\[\]\\$\"\n]", word):
                raise CellblockError(
                    f"image {self._image}: the path {word!r} holds a character that builders give a meaning",
                    hint="rename it, or build with --engine native",
                )
        option = f"--from={origin} " if origin else ""
        text = json.dumps(words) if any(" " in word for word in words) else " \\\n    ".join(words)
        if len(words) == 2:
            text = text.replace(" \\\n    ", " ")
        self._flush()
        # Once for a row of them.
        repeated = any(one.title == title and one.comment == comment for one in self._instructions)
        self.add(f"COPY {option}{text}", title, "" if repeated else comment, at)

    def sources(self, step: CompileIn) -> None:
        for index, (folder, there) in enumerate(step.sources):
            name = f"{self._image}/sources/{index}-{folder.name}"
            self._files.append((name, folder))
            self.copy([name], there, step.title)

    def configure(self, config: ImageConfig, *, inherits_command: bool) -> None:
        """Last, so that a changed label (the key) costs no layer that a builder has in its cache."""
        env = {"PATH": apt.PATH, **config.env}
        self.add(f"ENV {self._pairs(env)}", "configure")
        if config.labels:
            self.add(f"LABEL {self._pairs(config.labels)}", "configure")
        if config.entrypoint or inherits_command:
            self.add(f"ENTRYPOINT {json.dumps(list(config.entrypoint))}", "configure")
        if config.command or inherits_command:
            self.add(f"CMD {json.dumps(list(config.command))}", "configure")
        if config.stop_signal:
            self.add(f"STOPSIGNAL {config.stop_signal}", "configure")

    def _pairs(self, values: dict[str, str]) -> str:
        for name, value in values.items():
            if "\n" in value:
                raise CellblockError(
                    f"image {self._image}: the value of {name} has several lines, "
                    "which a Containerfile cannot say",
                    hint=f"write {name} on one line in its image.yaml",
                )
        return " \\\n    ".join(f"{name}={_argument(value)}" for name, value in values.items())

    def _flush(self) -> None:
        pending, self._pending = self._pending, _Pending()
        if pending.items:
            text = shell_text.run([*pending.items, *cleaning(self._per_machine)])
            comment = "\n".join(dict.fromkeys(pending.comments))
            titles = ", ".join(pending.titles)
            self._instructions.append(Instruction(f"RUN {text}", titles, comment, tuple(pending.at)))


def _compile(step: CompileIn, recipe: Recipe, toolchain: str) -> Stage:
    """The throwaway stage in which `step` compiles."""
    writer = _Writer(recipe.image)
    writer.sources(step)
    text = shell_text.run(shell_text.statements(step.lines))
    writer.add(f"RUN {text}", step.title, at=step.at)
    return writer.stage(f"{recipe.image}-compile", toolchain, f"compiles what {recipe.image} holds")


def _install(step: Install) -> list[str]:
    """Statements that fetch lists and packages, install, and start no service."""
    # Lock files would stay behind; a builder runs one step at a time in a root.
    options = [f"-o{option}" for option in (*apt.APT_OPTIONS, *step.apt_options, "Debug::NoLocking=true")]
    options += [f"-oDPkg::Options::=--{flag}" for flag in apt.DPKG_OPTIONS]
    lines, items = _with_keys(step.sources)
    files = []
    for name, text in {
        "/etc/apt/sources.list.d/build-only.list": "\n".join(lines),
        "/etc/apt/preferences.d/build-only": step.preferences.strip("\n"),
    }.items():
        if text:
            items.append(f"printf '%s\\n'{shell_text.one_a_line(text.splitlines())} \\\n      > {name}")
            files.append(name)
    replaced = "-oDir::Etc::SourceList=/tmp/sources.list -oDir::Etc::SourceParts=/dev/null"
    argument = SOURCES_ARGUMENT
    return [
        *items,
        "printf '#!/bin/sh\\nexit 101\\n' > /usr/sbin/policy-rc.d",
        "chmod 755 /usr/sbin/policy-rc.d",
        "export DEBIAN_FRONTEND=noninteractive",
        "set -- -qq --yes" + shell_text.one_a_line(options),
        f'if [ -n "${{{argument}:-}}" ]; then \\\n'
        f"      printf '%s\\n' \"${argument}\" > /tmp/sources.list; \\\n"
        f'      set -- "$@" {replaced}; \\\n    fi',
        'apt-get "$@" -oAPT::Update::Error-Mode=any update </dev/null',
        'apt-get "$@" install </dev/null' + shell_text.one_a_line(step.packages),
        *(_manuals() if step.manuals else ()),
        "rm -f " + " ".join(["/usr/sbin/policy-rc.d", *files]),
    ]


def _manuals() -> list[str]:
    """Statements that fetch debs once more and unpack their manual pages; `$@` are apt-get's options."""
    return [
        "mkdir /tmp/manuals",
        f'(cd /tmp/manuals && apt-get "$@" download $({manuals.NAMES}) </dev/null)',
        *manuals.unpack("/tmp/manuals"),
    ]


def _with_keys(sources: Sequence[str]) -> tuple[list[str], list[str]]:
    """`sources` with keys at places of the image, and the statements that put them there, for one RUN."""
    lines, items = list(sources), []
    for number, line in enumerate(sources):
        key = re.search(r"signed-by=(/[^\s\],]+)", line)
        if key and Path(key[1]).is_file():
            text = base64.encodebytes(Path(key[1]).read_bytes()).decode().split()
            here = f"/tmp/key-{number}{Path(key[1]).suffix}"
            items.append(f"printf '%s\\n'{shell_text.one_a_line(text)} \\\n      | base64 -d > {here}")
            lines[number] = line.replace(key[1], here)
    return lines, items


def _tree(folder: Path) -> tuple[dict[str, list[str]], list[str], dict[str, str]]:
    """Files by their folder, folders that hold nothing, and links with where they lead; all relative."""
    groups: dict[str, list[str]] = {}
    folders: list[str] = []
    links: dict[str, str] = {}
    for path in _walk(folder):
        name = path.relative_to(folder)
        if path.is_symlink():
            links[str(name)] = str(path.readlink())
        elif path.is_dir():
            if not any(path.iterdir()):
                folders.append(str(name))
        else:
            groups.setdefault(str(name.parent), []).append(str(name))
    return groups, folders, links


def _walk(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        yield path
        if path.is_dir() and not path.is_symlink():
            yield from _walk(path)


def _argument(value: str) -> str:
    """A value of ENV or LABEL: builders take quotes and backslashes away and replace $NAME."""
    if re.fullmatch(r"[A-Za-z0-9_@%+=:,./-]+", value):
        return value
    return '"' + re.sub(r'(["\\$])', r"\\\1", value) + '"'


def _summary(recipe: Recipe) -> str:
    return recipe.config.labels.get("org.opencontainers.image.description", "") or recipe.image
