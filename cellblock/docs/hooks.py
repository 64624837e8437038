# SPDX-License-Identifier: Apache-2.0
"""Implements mkdocs' hooks (mkdocs.yml): adds generated pages, rewrites links, draws flowcharts."""

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
_SENTENCE = re.compile(r"(<td>)<code>([^<]{24,} [^<]*|[^<]* [^<]{24,})</code>")
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
    page.meta.setdefault("description", description(markdown))
    markdown = _CHART.sub(
        lambda found: f'<div class="cb-scroll">{svg(found[1], f"flowchart of {page.title}")}</div>', markdown
    )
    folder = "." if source.startswith("project/") else str(PurePosixPath("docs", source).parent)
    return _LINK.sub(lambda found: _link(found[1], found[2], folder, source), markdown)


def on_page_content(html: str, **_: Any) -> str:
    """Let long messages in the first column of a table wrap; names there do not."""
    return _SENTENCE.sub(r'\1<code class="sentence">\2</code>', html)


def description(markdown: str) -> str:
    """What search engines show of a page: the first sentences below its title, without their kind."""
    prose = [
        part for part in markdown.split("\n\n") if part and not part.startswith(("#", "    ", "|", "```"))
    ]
    text = " ".join(" ".join(prose[:2]).split())
    text = re.sub(r"\[([^\]]+)\]\([^)]*\)|[*`]", r"\1", text)
    text = re.sub(r"^(Tutorial|How-to|Reference|Explanation)\. ", "", text)
    return text if len(text) < 200 else text[: text.rfind(". ", 0, 200) + 1] or text[:200].rpartition(" ")[0]


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
