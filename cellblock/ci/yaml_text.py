# SPDX-License-Identifier: Apache-2.0
"""Writes data as YAML that a person may read: keys in order, scripts as literal blocks, no aliases."""

from __future__ import annotations

from typing import Any

import yaml


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        # Lists stand indented below their key, as these services' own examples have them.
        super().increase_indent(flow, False)


def _string(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _string)


def yaml_text(data: dict[str, Any], heading: str) -> str:
    """`data` as a YAML document below the comment lines `heading`; ends with a newline."""
    comment = "".join(f"# {line}\n" for line in heading.splitlines())
    body = yaml.dump(data, Dumper=_Dumper, sort_keys=False, width=110, allow_unicode=True)
    return comment + body
