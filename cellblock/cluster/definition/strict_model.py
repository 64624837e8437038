# SPDX-License-Identifier: Apache-2.0
"""Defines the base class of all models of the cluster file: it refuses unknown keys and wrong types."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Strict(BaseModel):
    """Numbers and switches are themselves: `count: "2"` and `default: 1` are mistakes, and said so."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, use_attribute_docstrings=True)
