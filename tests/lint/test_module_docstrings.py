# SPDX-License-Identifier: Apache-2.0
"""Checks first docstrings of modules: the files that they name exist, and those said to call them do."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from pathlib import Path

from cellblock.paths import PROJECT

_FOLDERS = ("cellblock", "images", "native", "pyxis", "tests")
_FILE = r"\w[\w/-]*\.py\b"


def sources() -> dict[str, str]:
    folders = (path for folder in _FOLDERS for path in (PROJECT / folder).rglob("*.py"))
    paths = (PROJECT / "build.py", PROJECT / "setup.py", *folders)
    return {str(path.relative_to(PROJECT)): path.read_text(encoding="utf-8") for path in paths}


def docstring(source: str) -> str:
    return ast.get_docstring(ast.parse(source)) or ""


def named(path: str, name: str, texts: Mapping[str, str]) -> str | None:
    """The file that `name` means in the docstring of `path`: seen from its folder or from one above."""
    places = (str(folder / name) for folder in Path(path).parents)
    return next((place for place in (*places, f"cellblock/{name}") if place in texts), None)


def missing(texts: Mapping[str, str]) -> list[str]:
    return [
        f"{path}: there is no {name}"
        for path, source in texts.items()
        for name in re.findall(_FILE, docstring(source))
        if named(path, name, texts) is None
    ]


def untrue_callers(texts: Mapping[str, str]) -> list[str]:
    """Files that are said to call a module and do not import it."""
    found = []
    for path, source in texts.items():
        for said in re.findall(rf"({_FILE}(?:(?:, | and ){_FILE})*) calls? (?:it|them)\b", docstring(source)):
            for name in re.findall(_FILE, said):
                caller = named(path, name, texts)
                if caller and not re.search(
                    rf"\b{Path(path).stem}\b.*import|import.*\b{Path(path).stem}\b", texts[caller]
                ):
                    found.append(f"{path}: {name} does not import it")
    return found


def test_files_that_docstrings_name_exist() -> None:
    assert missing(sources()) == []


def test_who_is_said_to_call_a_module_imports_it() -> None:
    assert untrue_callers(sources()) == []


def test_a_file_that_does_not_exist_is_found() -> None:
    texts = {"cellblock/a/one.py": '"""Does it; two.py and a/three.py are beside it, four.py is gone."""'}
    texts |= {"cellblock/a/two.py": "", "cellblock/a/three.py": ""}
    assert missing(texts) == ["cellblock/a/one.py: there is no four.py"]


def test_a_caller_that_does_not_call_is_found() -> None:
    texts = {
        "cellblock/one.py": '"""Does it. two.py and three.py call it."""',
        "cellblock/two.py": "from cellblock.one import do",
        "cellblock/three.py": "from cellblock.two import do",
    }
    assert untrue_callers(texts) == ["cellblock/one.py: three.py does not import it"]
