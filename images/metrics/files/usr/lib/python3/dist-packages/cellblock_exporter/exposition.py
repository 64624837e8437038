# SPDX-License-Identifier: Apache-2.0
"""Writes metrics in Prometheus' text format, version 0.0.4."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_NONE: Mapping[str, str] = {}


def _label(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))


class Text:
    """Families of metrics as text. A family's samples stand together, as the format asks."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def gauge(self, name: str, help_text: str, value: float, labels: Mapping[str, str] = _NONE) -> None:
        """Add a gauge of one sample."""
        self.family(name, "gauge", help_text, ((labels, value),))

    def family(
        self, name: str, kind: str, help_text: str, samples: Iterable[tuple[Mapping[str, str], float]]
    ) -> None:
        """Add a family of type `kind`: gauge or counter. Without samples nothing is added."""
        lines = []
        for labels, value in samples:
            inside = ",".join(f'{key}="{_label(text)}"' for key, text in labels.items())
            lines.append(f"{name}{{{inside}}} {_number(value)}" if inside else f"{name} {_number(value)}")
        if lines:
            self._lines += [f"# HELP {name} {help_text}", f"# TYPE {name} {kind}", *lines]

    def encode(self) -> bytes:
        """The text as it is sent; each line ends."""
        return "".join(f"{line}\n" for line in self._lines).encode()
