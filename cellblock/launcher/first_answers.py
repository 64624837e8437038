# SPDX-License-Identifier: Apache-2.0
"""Answers `--help`, `targets` and unknown commands in a checkout where nothing is installed yet.

The texts of `--help` and the variants are in first_answers.json, written by
`python -m cellblock.cli.first_answers`; a test compares them with what the installed commands say.
What cannot be told for certain (somebody changed images/variants.yaml, say) is left to these commands.

Standard library only.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys

from cellblock.launcher import failure
from cellblock.machine.host import host_release, newest_of_family

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

STORED = "cellblock/launcher/first_answers.json"
VARIANTS = "images/variants.yaml"

# A key of an image.yaml, and the image that one stands on.
_KEY = re.compile(r"^([^\s#:-][^:\n]*):", re.MULTILINE)
_FROM = re.compile(r"^from: (\S+)$", re.MULTILINE)
# A plain scalar (YAML 1.2, 7.3.3) of one line, without what could make it anything else.
_SUMMARY = re.compile(r"^summary: ([A-Za-z0-9](?:(?! #|: )[^\n])*)\n(?! )", re.MULTILINE)


def answer(project: str, args: list[str]) -> int | None:
    """Answer the command line `args` and return its status; None when that takes an installation."""
    try:
        with open(f"{project}/{STORED}", encoding="utf-8") as file:  # noqa: PTH123
            stored = json.load(file)
    except (OSError, ValueError):
        return None
    if args in (["targets"], ["targets", "--json"]):
        text = _targets(project, stored, as_json=len(args) == 2)
        status = 0
    else:
        unknown = _unknown_command(stored["help"], args)
        if unknown:
            return _tell_unknown(unknown, args)
        text, status = _help(stored["help"], args)
    if text is None:
        return None
    try:
        # As typer does: help that nobody asked for is no result.
        stream = sys.stderr if status else sys.stdout
        stream.write(text)
        stream.flush()
    except BrokenPipeError:
        from cellblock.launcher import closed_pipe

        return closed_pipe.end_quietly()
    return status


def _help(texts: Mapping[str, list[str]], args: list[str]) -> tuple[str | None, int]:
    """The help that `args` ask for, and the status."""
    if not args:
        return _joined(texts[""]), 2
    words = [word for word in args if not word.startswith("-")]
    command = ""
    for word in words:
        if f"{command} {word}".strip() not in texts:
            break
        command = f"{command} {word}".strip()
    is_group = any(name.startswith(f"{command} ") for name in texts)
    # `shell PROGRAM --help` is the program's, and what is no target at all has no help.
    unclear = "--" in args or (command == "shell" and len(words) > 1) or (words and not command)
    unclear = unclear or (is_group and len(words) > len(command.split()))
    return (_joined(texts[command]), 0) if "--help" in args and not unclear else (None, 0)


def _unknown_command(texts: Mapping[str, list[str]], args: list[str]) -> str:
    """What is wrong with the first word of `args`, in typer's words, when it is no command; else empty.

    A mistyped word must not install what only a command needs.
    """
    commands = [name for name in texts if name and " " not in name]
    word = args[0] if args else "--help"
    if word.startswith("-") or word in commands:
        return ""
    import difflib

    close = ", ".join(repr(name) for name in difflib.get_close_matches(word, commands))
    return f"No such command {word!r}." + (f" Did you mean {close}?" if close else "")


def _tell_unknown(message: str, args: list[str]) -> int:
    """Say that there is no such command, as cellblock.cli.__main__ does; returns the status."""
    program = failure.PROGRAM
    if failure.logs_json(args) or failure.prints_json(args):
        return failure.tell(message, f"`{program} --help` lists what there is", 2, args)
    usage = f"Usage: {program} [OPTIONS] COMMAND [ARGS]...\nTry '{program} --help' for help.\n"
    sys.stderr.write(f"{usage}\nError: {message}\n")
    return 2


def _joined(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _targets(project: str, stored: Mapping[str, Any], *, as_json: bool) -> str | None:
    images = _images(project, stored["image_keys"])
    if images is None or digest(project) != stored["variants_sha256"]:
        return None
    default = newest_of_family(map(tuple, stored["candidates"]), host_release())
    return targets_text(images, stored["variants"], default, as_json=as_json) if default else None


def digest(project: str) -> str:
    """SHA-256 of the file that declares the variants."""
    with open(f"{project}/{VARIANTS}", "rb") as file:  # noqa: PTH123
        return hashlib.sha256(file.read()).hexdigest()


def _images(project: str, keys: Sequence[str]) -> dict[str, str] | None:
    """Image -> its summary; None when one cannot be told without reading YAML in earnest.

    None, too, where an image has another key than `keys`, or stands on none: the command says what is wrong.
    """
    found = {}
    parents = set()
    folder = f"{project}/images"
    for name in sorted(os.listdir(folder)):  # noqa: PTH208
        try:
            with open(f"{folder}/{name}/image.yaml", encoding="utf-8") as file:  # noqa: PTH123
                text = file.read()
        except (FileNotFoundError, NotADirectoryError):
            continue
        summary = _SUMMARY.search(text)
        if summary is None or not {key.strip() for key in _KEY.findall(text)} <= {*keys}:
            return None
        found[name] = summary[1].rstrip()
        parents.update(_FROM.findall(text))
    return found if parents <= found.keys() else None


def targets_text(
    images: Mapping[str, str], variants: Mapping[str, str], default: str, *, as_json: bool
) -> str:
    """What `targets` prints: images and variants with their summaries, and the variant of this machine."""
    if as_json:
        whole = {"images": dict(images), "variants": dict(variants), "default_variant": default}
        return json.dumps(whole) + "\n"
    width = max(map(len, [*images, *variants])) + 2
    lines = ["Images (build.py build IMAGE...):"]
    lines += [f"  {name:{width}}{summary}" for name, summary in images.items()]
    lines += ["", "Variants (--variant NAME):"]
    for name, summary in variants.items():
        lines.append(f"  {name:{width}}{summary}{'  [default here]' if name == default else ''}")
    return "\n".join(lines) + "\n"
