# SPDX-License-Identifier: Apache-2.0
"""Makes reference pages from tables in C sources: mount plan, plugstack.conf, enroot's settings.

Names, types and defaults are read from the sources, and meanings from meanings.py. StaleDocsError is raised
when a source has a name without a meaning, or the other way round.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from cellblock.docs import meanings
from cellblock.docs.table import code, table
from cellblock.errors import CellblockError
from cellblock.paths import PROJECT

_FOLDERS = ("native", "spank_jail", "enroot", "pyxis")
_FLAGS = {
    "MOUNT_ATTR_RDONLY": "ro",
    "MOUNT_ATTR_NOSUID": "nosuid",
    "MOUNT_ATTR_NODEV": "nodev",
    "MOUNT_ATTR_NOEXEC": "noexec",
}
_NAME = re.compile(r'"([\w-]+)"')
_ENTRY = re.compile(r'^\t\{ "(\w+)", JAIL_\w+, ([^{]*?),\s*\{ ([^}]*) \} \}', re.MULTILINE)
_FLAG = re.compile(r'\{ "(\w+)", (?:MOUNT_ATTR_\w+|0), (?:MOUNT_ATTR_\w+|0) \}')
_OPTION = re.compile(r'strcmp\(key, "(x-[\w.-]+|nofail)"\)')
_ARGUMENT = re.compile(r'jail_value_of\(argument, "([\w-]+)"\)')
_SWITCH = re.compile(r'\{ "(\w+)", &arguments->')
_SETTING = re.compile(r'^\t\{ "(ENROOT_\w+)", "([^"]*)" \},$', re.MULTILINE)


class StaleDocsError(CellblockError):
    """A page that is made from a source does not fit it any more."""


def plan_page() -> str:
    """The page `reference/mount-plan.md`: types, parameters, and options of a line of the mount plan."""
    source = _source("plan_options.c", "types[] =")
    types = _ENTRY.findall(source)
    options = {*_FLAG.findall(source), *_OPTION.findall(source)}
    _compare("plan_options.c", "types of the mount plan", (name for name, _, _ in types), meanings.PLAN_TYPES)
    _compare("plan_options.c", "options of the mount plan", options, meanings.PLAN_OPTIONS)
    taken = {each for _, _, parameters in types for each in _NAME.findall(parameters)}
    _compare("plan_options.c", "parameters of the mount plan", taken, meanings.PLAN_PARAMETERS)
    rows = [
        (
            code(name),
            " ".join(code(flag) for attribute, flag in _FLAGS.items() if attribute in attributes) or "none",
            " ".join(code(each) for each in _NAME.findall(parameters)) or "none",
            meanings.PLAN_TYPES[name],
        )
        for name, attributes, parameters in types
    ]
    return _page(
        "The mount plan: types and options",
        "What they do together, with examples: [The mount plan](../jail-plan.md).",
        "## Types",
        "`bind` and `rbind` are written as type `none` with the option of that name.",
        table(("type", "set by default", "parameters", "meaning"), rows),
        "## Parameters",
        "Each is written as `NAME=VALUE` among the options.",
        table(("parameter", "meaning"), _rows(meanings.PLAN_PARAMETERS)),
        "## Options",
        table(("option", "meaning"), _rows(meanings.PLAN_OPTIONS)),
    )


def plugstack_page() -> str:
    """The page `reference/plugstack.md`: arguments of both SPANK plugins."""
    jail = set(_ARGUMENT.findall(_source("arguments.c", '"bind-allow"')))
    jail.update(_ARGUMENT.findall(_source("selection.c", '"jail-partitions"')))
    containers = _source("arguments.c", '"container_scope"')
    pyxis = {*_ARGUMENT.findall(containers), *_SWITCH.findall(containers)}
    _compare("arguments.c", "arguments of spank_jail.so", jail, meanings.JAIL_ARGUMENTS)
    _compare("arguments.c", "arguments of pyxis.so", pyxis, meanings.PYXIS_ARGUMENTS)
    head = ("argument", "default", "meaning")
    return _page(
        "Arguments in plugstack.conf",
        "An argument is `NAME=VALUE`; an unknown one is an error when slurmd starts.",
        "## spank_jail.so",
        "More: [The mount plan](../jail-plan.md).",
        table(head, ((code(f"{name}="), *rest) for name, rest in meanings.JAIL_ARGUMENTS.items())),
        "## pyxis.so",
        "More: [Containers in jobs](../pyxis.md).",
        table(head, ((code(f"{name}="), *rest) for name, rest in meanings.PYXIS_ARGUMENTS.items())),
    )


def enroot_page() -> str:
    """The page `reference/enroot-settings.md`: enroot's settings with their defaults."""
    defaults = dict(_SETTING.findall(_source("settings.c", '"ENROOT_LIBRARY_PATH"')))
    _compare("settings.c", "settings of enroot", defaults, meanings.ENROOT_SETTINGS)
    rows = [
        (code(name), code(value) or "empty", meanings.ENROOT_SETTINGS[name])
        for name, value in defaults.items()
    ]
    return _page(
        "Settings of enroot",
        "Each is a variable of the environment, or a line of `enroot.conf`. A default may refer to those "
        "above it. `no`, `n`, `false` and `f`, in any case, and an empty value mean no. What differs from "
        "upstream: [enroot](../enroot.md).",
        table(("setting", "default", "meaning"), rows),
    )


def _page(title: str, *parts: str) -> str:
    kind = "*Reference. Names, types and defaults are read from the C sources.*"
    return "\n\n".join((f"# {title}", kind, *(part.strip() for part in parts))) + "\n"


def _source(name: str, having: str) -> str:
    """The text of the one C source of this name that has a word; sources may be moved."""
    found = [
        path
        for folder in _FOLDERS
        for path in (PROJECT / folder).rglob(name)
        if "tests" not in path.parts and having in path.read_text()
    ]
    if len(found) != 1:
        raise StaleDocsError(
            f"{name}: {len(found)} C sources of this name have {having}; a page is made of one",
            hint="name the right one in cellblock/docs/c_tables.py",
        )
    return Path(found[0]).read_text()


def _compare(file: str, what: str, found: Iterable[str], told: Mapping[str, object]) -> None:
    names = set(found)
    if names != set(told):
        new, gone = sorted(names - set(told)), sorted(set(told) - names)
        raise StaleDocsError(
            f"{file}: {what}: no meaning is written for {new}, and there is no {gone}",
            hint="write the meanings in cellblock/docs/meanings.py",
        )


def _rows(told: Mapping[str, str]) -> list[tuple[str, str]]:
    return [(code(name), meaning) for name, meaning in told.items()]
