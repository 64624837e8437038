# SPDX-License-Identifier: Apache-2.0
"""Lists all pages that are made from the program, by path below docs/, and makes those that are simple."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from cellblock.docs.meanings import ENVIRONMENT, EXIT_STATUS, NODE_ENVIRONMENT, PROGRAM_EXIT_STATUS
from cellblock.docs.table import code, table
from cellblock.paths import PROJECT


def pages() -> dict[str, str]:
    """Path below docs/ -> Markdown. Raises `StaleDocsError` where a source has what no page explains."""
    from cellblock.docs import c_tables, commands, declared

    makers: dict[str, Callable[[], str]] = {
        "reference/commands.md": commands.commands_page,
        "reference/definitions.md": declared.definitions_page,
        "reference/cluster-file.md": declared.cluster_page,
        "reference/mount-plan.md": c_tables.plan_page,
        "reference/plugstack.md": c_tables.plugstack_page,
        "reference/enroot-settings.md": c_tables.enroot_page,
        "reference/environment.md": environment_page,
        "reference/exit-status.md": exit_status_page,
        "decisions/index.md": decisions_page,
    }
    return {path: maker() for path, maker in makers.items()} | {
        f"project/{name.lower().replace('_', '-')}.md": (PROJECT / f"{name}.md").read_text()
        for name in ("CONTRIBUTING", "SECURITY", "CHANGELOG", "CODE_OF_CONDUCT")
    }


def environment_page() -> str:
    """The page `reference/environment.md`: variables that `build.py` reads."""
    rows, nodes = (
        [(code(name), default, meaning) for name, (default, meaning) in each.items()]
        for each in (ENVIRONMENT, NODE_ENVIRONMENT)
    )
    return (
        "# Environment variables\n\n*Reference. A test compares the names with what the program reads.*\n\n"
        "`build.py` reads these. The command line wins over them. "
        "[enroot's settings](enroot-settings.md) have a page of their own, and so have "
        "[options of a job](../jail-plan.md#options-of-a-job).\n\n"
        + table(("variable", "default", "meaning"), rows)
        + "\n## Containers of nodes\n\n"
        "The programs that containers of the project's images start with read these. The local cluster sets "
        "them; in Kubernetes they stand in the manifest.\n\n"
        + table(("variable", "default", "meaning"), nodes)
    )


def exit_status_page() -> str:
    """The page `reference/exit-status.md`."""
    return (
        "# Exit status\n\n*Reference.*\n\n## build.py\n\n"
        + table(("status", "meaning"), [(code(name), meaning) for name, meaning in EXIT_STATUS.items()])
        + "\nWith `--log json` a failure is a line with `error` and `next` on stderr; with `--json` it is "
        "an object that has both, in the place of the result.\n\n## Programs of nodes\n\n"
        + table(
            ("program", "status", "meaning"),
            [
                (code(program), code(status), meaning)
                for program, statuses in PROGRAM_EXIT_STATUS.items()
                for status, meaning in statuses.items()
            ],
        )
    )


def decisions() -> list[Path]:
    """The pages of docs/decisions, sorted."""
    return sorted((PROJECT / "docs" / "decisions").glob("*.md"))


def title_of(page: Path) -> str:
    """The first heading of a page."""
    found = re.search(r"^# (.+)$", page.read_text(), re.MULTILINE)
    return found[1] if found else page.stem


def decisions_page() -> str:
    """The page `decisions/index.md`: each decision by the part that it is about."""
    lines = [
        "# Decisions",
        "*Explanation. What could have gone another way, and why it did not.*",
        "Each page says what was considered, what was measured, and what was chosen.",
    ]
    part = ""
    for page in decisions():
        first = page.stem.partition("-")[0]
        if first != part:
            part = first
            lines.append(f"## {part}")
        lines.append(f"- [{title_of(page)}]({page.name})")
    text = "\n\n".join(lines)
    return re.sub(r"(\n- [^\n]+)\n(?=\n- )", r"\1", text) + "\n"
