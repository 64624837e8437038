# SPDX-License-Identifier: Apache-2.0
"""How the C is cut: libraries below, programs above, no circles, and files that say what they do."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from cellblock.paths import PROJECT
from tests.lint.test_lint import files

# Lowest first: a library includes what stands before it. The order of native/build.mk, from the other end.
LIBRARIES = (
    *("base", "settings", "slurm", "seccomp", "mount", "cdi", "jail", "container", "layers", "cache"),
    *("registry", "squashfs", "directory", "tree_check", "volume"),
)
PROGRAMS = ("spank_jail", "enroot", "pyxis")
# The same for what the SPANK plugin of the jail is made of.
PLUGIN = ("options", "job", "guards", "slurm")
# What guards one kind of daemon includes of the guards its own folder, and this one.
GUARDS_OF_ALL = "common"
FOLDERS = ("native", *PROGRAMS)


def sources() -> dict[str, str]:
    """Path -> text of what ships: tests may include what they like."""
    return {
        str(path): (PROJECT / path).read_text()
        for path in files()
        if path.suffix in (".c", ".h")
        and path.parts[0] in FOLDERS
        and not {"tests", "fuzz", "testing"} & set(path.parts)
    }


def includes(texts: Mapping[str, str]) -> dict[str, list[str]]:
    """Path -> paths of what it includes, from the top of the project."""
    found: dict[str, list[str]] = {}
    for path, text in texts.items():
        names = re.findall(r'^\s*#\s*include "([^"]+)"', text, re.MULTILINE)
        beside = {name: os.path.normpath(f"{os.path.dirname(path)}/{name}") for name in names}  # noqa: PTH120
        found[path] = [beside[name] if beside[name] in texts else name for name in names]
    return found


def runs_up(path: str, included: str) -> bool:
    """Whether a library includes a higher one or a program, a program another one, a part a higher part.

    Guards of one kind of daemon are higher than those of another kind, each way.
    """
    one, other = Path(path).parts, Path(included).parts
    if one[0] != "native":
        if other[0] != one[0]:
            return other[0] != "native"
        if one[1] == other[1] == "guards":
            return other[2] not in (one[2], GUARDS_OF_ALL)
        parts = [PLUGIN.index(each[1]) for each in (one, other) if each[1] in PLUGIN]
        return len(parts) == 2 and parts[1] > parts[0]
    if other[0] != "native":
        return True
    return LIBRARIES.index(other[1]) > LIBRARIES.index(one[1])


def units(texts: Mapping[str, str]) -> dict[str, set[str]]:
    """File without its extension -> those that it needs.

    A header without a source of its own is no unit: what it includes counts for those who include it.
    """
    included = includes(texts)

    def reached(path: str, seen: set[str]) -> Iterator[str]:
        for each in included[path]:
            if each in seen:
                continue
            seen.add(each)
            if each.endswith(".h") and f"{each[:-2]}.c" not in texts:
                yield from reached(each, seen)
            else:
                yield each[:-2]

    needs: dict[str, set[str]] = {}
    for path in texts:
        unit = path[:-2]
        if f"{unit}.c" in texts:
            needs.setdefault(unit, set()).update(each for each in reached(path, set()) if each != unit)
    return needs


def circles(needs: Mapping[str, set[str]]) -> set[frozenset[str]]:
    """Sets of units each of which reaches all others of its set."""

    def all_of(unit: str) -> set[str]:
        found: set[str] = set()
        open_ = [unit]
        while open_:
            for each in needs.get(open_.pop(), ()):
                if each not in found:
                    found.add(each)
                    open_.append(each)
        return found

    reach = {unit: all_of(unit) for unit in needs}
    return {
        frozenset(each for each in reach[unit] if unit in reach.get(each, ()))
        for unit in needs
        if unit in reach[unit]
    }


def without_comments(text: str) -> str:
    # A string may have what looks like the beginning of a comment: a pattern of paths.
    quoted = r"""("(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])+')"""
    return re.sub(rf"{quoted}|/\*.*?\*/", lambda match: match[1] or "", text, flags=re.DOTALL)


# A function that other files see, at the beginning of a line.
_FUNCTION = r"^(?!static|typedef|extern)[a-zA-Z_][\w \*]*?\b(\w+)\([^;{}]*\)"


def declared_elsewhere(texts: Mapping[str, str]) -> list[str]:
    """Functions of headers that no source in the header's folder implements."""
    implemented: dict[str, set[str]] = {}
    for path, text in texts.items():
        if path.endswith(".c"):
            for name in re.findall(_FUNCTION + r"\s*\{", without_comments(text), re.MULTILINE):
                implemented.setdefault(name, set()).add(str(Path(path).parent))
    return [
        f"{path} declares {name}"
        for path, text in texts.items()
        if path.endswith(".h")
        for name in re.findall(_FUNCTION + r"[^;{}()]*;", without_comments(text), re.MULTILINE)
        if str(Path(path).parent) not in implemented.get(name, ())
    ]


def own_names(text: str) -> set[str]:
    """The macros of a source, and its static variables."""
    text = without_comments(text)
    names = set(re.findall(r"^#define (\w+)", text, re.MULTILINE))
    names.update(re.findall(r"^\} (\w+)(?:\[.*?\])*(?: =|;)", text, re.MULTILINE))
    for declared in re.findall(r"^static ([^;={(\n]+?)(?: =|;)", text, re.MULTILINE):
        names.update(re.findall(r"(\w+)(?:\[[^]]*\])*(?:,|$)", declared))
    for declared in re.findall(r"^static [\w *]+(\(\*[^;={\n]+?)(?: =|;)", text, re.MULTILINE):
        names.update(re.findall(r"\(\*(\w+)", declared))
    return names - {"_GNU_SOURCE"}


def shared_names(texts: Mapping[str, str]) -> list[str]:
    """Macros and variables of one name that two sources of a folder have.

    Where a folder is compiled in one go they are one. No compiler says so if both have the same value, or
    none.
    """
    owners: dict[tuple[Path, str], list[str]] = {}
    for path, text in texts.items():
        for name in own_names(text):
            owners.setdefault((Path(path).parent, name), []).append(path)
    return sorted(f"{name}: {', '.join(paths)}" for (_, name), paths in owners.items() if len(paths) > 1)


def first_comment(text: str) -> str:
    """What a file begins with behind its licence, as one line; empty when that is no comment."""
    text = re.sub(r"\A/\* SPDX-License-Identifier: [^\n]* \*/\n", "", text)
    match = re.match(r"\s*/\*(.*?)\*/", text, re.DOTALL)
    return " ".join(re.sub(r"\n \*", " ", match[1]).split()) if match else ""


def says_something(comment: str) -> bool:
    """At least one sentence: four words, and a full stop, colon or semicolon."""
    return bool(re.match(r"\S+( \S+){3,}?[.:;]", f"{comment}"))


def says_who_calls(comment: str) -> bool:
    """Who reaches it: other files by a call, people and programs by running or loading it."""
    return bool(re.search(r"\b(call|run|queue|load|read)s? (it|them)\b", comment))


def test_no_include_runs_up() -> None:
    assert set(LIBRARIES) == {Path(path).parts[1] for path in sources() if path.startswith("native/")}
    wrong = [
        f"{path} includes {each}"
        for path, all_ in includes(sources()).items()
        for each in all_
        if runs_up(path, each)
    ]
    assert wrong == []


def test_the_linker_takes_the_libraries_in_the_same_order() -> None:
    (line,) = re.findall(r"^LIBRARIES := (.*)$", (PROJECT / "native/build.mk").read_text(), re.MULTILINE)
    place = {name: index for index, name in enumerate(line.split())}
    assert set(place) == set(LIBRARIES)
    for path, all_ in includes(sources()).items():
        for each in all_:
            if path.startswith("native/") and Path(path).parts[1] in place:
                assert place[Path(path).parts[1]] <= place[Path(each).parts[1]], f"{path} includes {each}"


def test_files_include_each_other_in_no_circle() -> None:
    assert circles(units(sources())) == set()


def test_headers_lie_with_what_implements_them() -> None:
    assert declared_elsewhere(sources()) == []


def test_names_are_unique_in_a_folder() -> None:
    # Three programs, of which each is compiled apart.
    apart = Path("spank_jail/node")
    assert (
        shared_names(
            {
                path: text
                for path, text in sources().items()
                if path.endswith(".c") and Path(path).parent != apart
            }
        )
        == []
    )


def test_each_source_asks_for_all_of_the_c_library_first() -> None:
    """One that did not would be another source where it is compiled behind one that does."""
    alone = ("spank_jail/init/", "spank_jail/stubs/")
    heads = {path: text.partition("#include")[0] for path, text in sources().items() if path.endswith(".c")}
    assert [
        path
        for path, head in heads.items()
        if "#define _GNU_SOURCE\n" not in head and not path.startswith(alone)
    ] == []


def test_each_source_begins_with_what_it_does_and_who_calls_it() -> None:
    texts = {
        str(path): (PROJECT / path).read_text()
        for path in files()
        if path.suffix == ".c" and path.parts[0] in FOLDERS
    }
    silent = [path for path, text in texts.items() if not says_something(first_comment(text))]
    assert silent == []
    shipped = {path: text for path, text in sources().items() if path.endswith(".c")}
    assert [path for path, text in shipped.items() if not says_who_calls(first_comment(text))] == []


@pytest.mark.parametrize(
    ("path", "included", "wrong"),
    [
        ("native/base/text.c", "native/mount/plan.h", True),
        ("native/cache/blob.c", "enroot/command/command.h", True),
        ("pyxis/step/task.c", "enroot/command/command.h", True),
        ("pyxis/step/task.c", "native/base/text.h", False),
        ("spank_jail/guards/step/silent_clients.c", "spank_jail/slurm/enter_step.h", True),
        ("spank_jail/slurm/enter_step.c", "spank_jail/job/spool.h", False),
        ("native/mount/plan.c", "native/base/text.h", False),
    ],
)
def test_what_runs_up_is_told(path: str, included: str, wrong: bool) -> None:
    assert runs_up(path, included) is wrong


def test_a_circle_is_told() -> None:
    texts = {
        "native/a/x.c": '#include "x.h"\n#include "parts.h"\n',
        "native/a/x.h": "",
        "native/a/parts.h": '#include "x.h"\n#include "native/a/y.h"\n',
        "native/a/y.c": '#include "y.h"\n#include "x.h"\n',
        "native/a/y.h": "",
        "native/a/z.c": '#include "x.h"\n',
    }
    assert circles(units(texts)) == {frozenset(("native/a/x", "native/a/y"))}


def test_a_function_that_is_implemented_elsewhere_is_told() -> None:
    texts = {
        "native/a/x.h": "/* int none(void); */\nint here(int a,\n\t int b);\nchar *there(void);\n",
        "native/a/x.c": "int here(int a, int b)\n{\n\treturn a;\n}\nstatic char *there(void)\n{\n}\n",
        "enroot/a/y.c": "char *there(void)\n{\n}\n",
    }
    assert declared_elsewhere(texts) == ["native/a/x.h declares there"]


def test_a_name_that_two_sources_of_a_folder_have_is_told() -> None:
    texts = {
        "native/a/x.c": "static int at, *of[2];\nstatic const char *names[] = {\n\t0,\n};\n#define MOST 1\n",
        "native/a/y.c": "static int of;\nstatic struct {\n\n} names;\n#define MOST 1\nstatic int at;\n",
        "native/a/z.c": "static int f(int i);\nstatic void (*end)(void *), (*put)(int names);\n",
        "native/a/w.c": "static int f(int i)\n{\n\tstatic int at;\n}\nstatic void (*put)(int at) = 0;\n",
        "native/b/y.c": "static int at;\n",
    }
    told = [text.split(":")[0] for text in shared_names(texts)]
    assert told == ["MOST", "at", "names", "of", "put"]


@pytest.mark.parametrize(
    ("comment", "enough"),
    [
        ("Parses the mount plan. tree.c calls it.", True),
        ("jail-init: the first process. native/jail/pid_namespace.c runs it.", True),
        ("Parses the mount plan: plan.h.", False),
        ("Runs commands, and calls what they ask for.", False),
    ],
)
def test_a_source_without_a_caller_is_told(comment: str, enough: bool) -> None:
    assert says_who_calls(comment) is enough


@pytest.mark.parametrize(
    ("text", "enough"),
    [
        ("#include <stdio.h>\n", False),
        ("/* Plans. */\n", False),
        ("/* SPDX-License-Identifier: Apache-2.0 */\n#include <stdio.h>\n", False),
        ("/* SPDX-License-Identifier: Apache-2.0 */\n/* Parses the mount plan: plan.h. */\n", True),
        ("/* Parses the mount plan.\n * plan.h says how. */\n", True),
    ],
)
def test_a_silent_source_is_told(text: str, enough: bool) -> None:
    assert says_something(first_comment(text)) is enough
