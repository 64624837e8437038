# SPDX-License-Identifier: Apache-2.0
"""The base of all models of the cluster file."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Strict(BaseModel):
    """Numbers and switches are themselves: `count: "2"` and `default: 1` are mistakes, and said so."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, use_attribute_docstrings=True)
