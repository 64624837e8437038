# SPDX-License-Identifier: Apache-2.0
"""What mkdocs calls to make the site (mkdocs.yml): adds generated pages, rewrites links, draws flowcharts."""

from __future__ import annotations

import os
import re
from pathlib import PurePosixPath
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

from cellblock.docs import generated
from cellblock.docs.diagram import svg
from cellblock.paths import PROJECT

_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)\s]+)\)")
_CHART = re.compile(r"^```mermaid\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# Pages that lie above docs/ and are shown under another path.
_MOVED = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "SECURITY.md": "project/security.md",
    "CHANGELOG.md": "project/changelog.md",
    "CODE_OF_CONDUCT.md": "project/code-of-conduct.md",
    "docs/decisions": "decisions/index.md",
}


def on_config(config: Any) -> Any:
    """List all decisions in the navigation, below their index."""
    for section in config.nav:
        for part in section.get("Explanation", []) if isinstance(section, dict) else []:
            if isinstance(part, dict) and "Decisions" in part:
                part["Decisions"] = ["decisions/index.md"] + [
                    {generated.title_of(page): f"decisions/{page.name}"} for page in generated.decisions()
                ]
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are made from the program."""
    for path, text in generated.pages().items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Draw flowcharts, and lead links to files of the project where the site has them."""
    source = page.file.src_uri
    markdown = _CHART.sub(lambda found: svg(found[1], f"flowchart of {page.title}"), markdown)
    folder = "." if source.startswith("project/") else str(PurePosixPath("docs", source).parent)
    return _LINK.sub(lambda found: _link(found[1], found[2], folder, source), markdown)


def _link(text: str, target: str, folder: str, source: str) -> str:
    """The link as the site has it; a file that the site does not have is shown by its name."""
    path, mark, anchor = target.partition("#")
    if not path or re.match(r"[a-z]+:", target):
        return f"[{text}]({target})"
    place = os.path.normpath(f"{folder}/{path}")
    here = str(PurePosixPath(source).parent)
    if place in _MOVED:
        return f"[{text}]({os.path.relpath(_MOVED[place], here)}{mark}{anchor})"
    if place.startswith("docs/") and (place.endswith((".md", ".svg", ".png"))):
        return f"[{text}]({os.path.relpath(place.removeprefix('docs/'), here)}{mark}{anchor})"
    if not (PROJECT / place).exists():
        raise PluginError(f"docs: {source} links to {target}, and there is no {place}")
    return text if "`" in text or text.strip("`") == place else f"{text} (`{place}`)"
