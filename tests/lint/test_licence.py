# SPDX-License-Identifier: Apache-2.0
"""Each source says under which licence it is, and the licence is the one that pyproject.toml names."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from licence_lines import MARK, has_line, sources, with_line

from cellblock import paths


def test_each_source_names_its_licence() -> None:
    found = sources()
    assert len(found) > 500
    without = [str(path.relative_to(paths.PROJECT)) for path in found if not has_line(path)]
    assert without == [], "add the line: .venv/bin/python tests/lint/licence_lines.py"


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("a.c", "int a;\n", f"/* {MARK} */\nint a;\n"),
        ("a.py", '"""A."""\n', f'# {MARK}\n"""A."""\n'),
        ("a.sh", "#!/bin/sh\nexit\n", f"#!/bin/sh\n# {MARK}\nexit\n"),
        ("Makefile", "all:\n", f"# {MARK}\nall:\n"),
    ],
)
def test_the_line_is_a_comment_and_comes_first(tmp_path: Path, name: str, text: str, expected: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    assert not has_line(path)
    path.write_text(with_line(path, text))
    assert path.read_text() == expected
    assert has_line(path)


def test_the_licence_is_the_one_that_is_named() -> None:
    assert "Apache License" in (paths.PROJECT / "LICENSE").read_text()[:200]
    assert 'license = "Apache-2.0"' in (paths.PROJECT / "pyproject.toml").read_text()


def test_hooks_of_git_run_what_is_here() -> None:
    """.pre-commit-config.yaml fetches nothing: each hook is local, and its program is the project's own."""
    repositories = yaml.safe_load((paths.PROJECT / ".pre-commit-config.yaml").read_text())["repos"]
    hooks = [hook for repository in repositories for hook in repository["hooks"]]
    assert {repository["repo"] for repository in repositories} == {"local"}
    assert hooks
    assert all(
        hook["language"] == "system" and hook["entry"].startswith(".venv/bin/python ") for hook in hooks
    )
