# SPDX-License-Identifier: Apache-2.0
"""Who is said to call a C file, in its first comment, does."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.lint.test_native import first_comment, sources, without_comments

_DEFINED = (
    # The arguments may be in parentheses themselves.
    r"^(?!static|typedef|extern)[a-z][\w \t*]*?\b(\w+)\([^;{]*?\)\s*\{",
    r"^(?!static|typedef|extern)[a-z][\w \t*]*?\b(\w+)(?:\[[^\]]*\])* = ",
)


def defined(source: str) -> set[str]:
    """The functions and variables that other files see."""
    text = without_comments(source)
    return {name for pattern in _DEFINED for name in re.findall(pattern, text, re.MULTILINE)}


def callers(path: str, source: str, texts: Mapping[str, str]) -> Iterator[tuple[str, list[str]]]:
    """Files and folders that the first comment says to call it, and the paths that each may mean."""
    said = r"([^.;:]*(?:\.c\b[^.;:]*)*?)\bcalls? (?:it|them)\b"
    for sentence in re.findall(said, first_comment(source)):
        for name in re.findall(r"[\w/]+\.c\b|\w+(?:/\w+)+", sentence):
            if not name.endswith(".c"):
                yield name, [each for each in texts if each.startswith(f"{name}/")]
                continue
            beside = str(Path(path).parent / name)
            yield (
                name,
                [beside] if beside in texts else [each for each in texts if f"/{each}".endswith(f"/{name}")],
            )


def untrue(texts: Mapping[str, str]) -> list[str]:
    """What is said to call a file, and names nothing that the file defines."""
    found = []
    for path, source in texts.items():
        if names := defined(source):
            used = re.compile(rf"\b(?:{'|'.join(sorted(names))})\b")
            found += [
                f"{path}: {name} calls nothing of it"
                for name, places in callers(path, source, texts)
                if not any(used.search(without_comments(texts[place])) for place in places)
            ]
    return found


def test_who_is_said_to_call_a_file_calls_it() -> None:
    shipped = {path: text for path, text in sources().items() if path.endswith(".c")}
    assert sum(len(list(callers(path, text, shipped))) for path, text in shipped.items()) > 300
    assert untrue(shipped) == []


def test_an_untrue_caller_is_found() -> None:
    said = "/* Does what is asked. two.c, three.c, four.c and b/deep call it. */\n"
    texts = {
        "a/one.c": f"{said}int one(int (*f)(void))\n{{\n}}\n",
        "a/two.c": "int two = one();\n",
        "a/three.c": "/* one() */\nint three(void);\n",
        "b/deep/five.c": "int five = one();\n",
    }
    assert untrue(texts) == ["a/one.c: three.c calls nothing of it", "a/one.c: four.c calls nothing of it"]
